"""What gpt did with a text when it held it as one string, and files of every kind that it reads.

`Twin` is the readable statement of what streaming must give: the same documents, split and ids.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet
import pytest
import zstandard

from gpt_cli.config import Config, DataConfig
from gpt_cli.errors import DataError, EnvironmentFailure
from gpt_cli.text.documents import TextBlock
from gpt_cli.text.encode import encode_parts
from gpt_cli.text.load import SourceCorpus, read_data
from gpt_cli.text.sft_examples import Examples
from gpt_cli.text.tokenizers import BytePairTokenizer, Tokenizer
from support.corpora import documents_of, read_split

KINDS = ("txt", "jsonl", "txt.gz", "jsonl.gz", "txt.zst", "jsonl.zst", "parquet")


@dataclass(frozen=True)
class Twin:
    """Documents as a list of whole strings."""

    documents: list[str]

    @property
    def digest(self) -> str:
        return hashlib.sha256(b"".join(b"\xff" + document.encode() for document in self.documents)).hexdigest()

    def divided(self, separator: str | None) -> Twin:
        if separator is None:
            return Twin([document for document in self.documents if document])
        pattern = re.escape(separator).replace("\\\n", "\r?\n")
        parts = [part for document in self.documents for part in re.split(pattern, document)]
        return Twin([part for part in parts if part.strip()])

    def split(self, validation_fraction: float) -> tuple[Twin, Twin]:
        num_characters = sum(map(len, self.documents))
        remaining = num_characters - round(num_characters * validation_fraction)
        training, validation = list[str](), list[str]()
        for document in self.documents:
            if remaining > 0:
                training.append(document[:remaining])
            if remaining < len(document):
                validation.append(document[max(remaining, 0) :])
            remaining -= len(document)
        return Twin(training), Twin(validation)

    def ids(self, tokenizer: Tokenizer, max_piece: int) -> list[int]:
        found = list[int]()
        for number, document in enumerate(self.documents):
            found += [tokenizer.end_of_text] if number else []
            for piece in pieces(document, max_piece):
                found += _encoded(piece, tokenizer)
        return found


def pieces(document: str, max_piece: int) -> list[str]:
    found, start = list[str](), 0
    while len(document) - start > max_piece:
        newline = document.rfind("\n", start, start + max_piece)
        end = newline + 1 if newline >= 0 else start + max_piece
        found.append(document[start:end])
        start = end
    return [*found, document[start:]]


def _encoded(piece: str, tokenizer: Tokenizer) -> list[int]:
    if isinstance(tokenizer, BytePairTokenizer):
        return tokenizer.encoding.encode_ordinary(piece)
    if tokenizer.kind == "byte":
        return list(piece.encode())
    ids = {token.decode(): number for number, token in enumerate(tokenizer.token_bytes)}
    return [ids[character] for character in piece]


def json_lines(documents: Sequence[str], field: str = "text") -> bytes:
    return "".join(json.dumps({"id": 1, field: each}, ensure_ascii=False) + "\n" for each in documents).encode()


def frames(content: bytes, frame: int = 100) -> bytes:
    """Zstandard data of several frames, as parallel compressors write."""
    parts = [content[at : at + frame] for at in range(0, len(content), frame)] or [b""]
    return b"".join(zstandard.compress(part) for part in parts)


def members(content: bytes, member: int = 100) -> bytes:
    """Gzip data of several members, as `cat a.gz b.gz` gives."""
    return b"".join(gzip.compress(content[at : at + member]) for at in range(0, len(content) + 1, member))


def parquet(texts: Sequence[Any], column: str = "text", kind: Any = None, **options: Any) -> bytes:
    memory = io.BytesIO()
    table = arrow.table({"id": arrow.array(range(len(texts))), column: arrow.array(texts, kind or arrow.string())})
    pyarrow.parquet.write_table(table, memory, **options)
    return memory.getvalue()


def packed(documents: Sequence[str], kind: str) -> bytes:
    """A file of a kind (the end of its name); those of plain text contain all documents as one."""
    if kind == "parquet":
        return parquet(documents, row_group_size=2)
    name, _, packing = kind.partition(".")
    content = json_lines(documents) if name == "jsonl" else "".join(documents).encode()
    return {"": bytes, "gz": members, "zst": frames}[packing](content)


def unpacked(documents: Sequence[str], kind: str) -> list[str]:
    """The documents that such a file contains."""
    return list(documents) if kind.startswith(("jsonl", "parquet")) else ["".join(documents)]


def cut(documents: Iterable[str], sizes: list[int]) -> list[TextBlock]:
    """Documents in blocks whose sizes follow a pattern."""
    found, number = list[TextBlock](), 0
    for document in documents:
        at = 0
        while at < len(document):
            size = sizes[number % len(sizes)]
            found.append(TextBlock(at == 0, document[at : at + size]))
            at, number = at + size, number + 1
    return found


def joined(blocks: Iterable[TextBlock]) -> list[str]:
    """The documents that blocks are of."""
    found = list[str]()
    for block in blocks:
        assert block.text, "a block is never empty"
        assert block.content == block.text.encode()
        if block.starts:
            found.append("")
        found[-1] += block.text
    return found


def array(ids: Any) -> np.ndarray:
    """Ids wherever they are, as an array."""
    return ids[:]


def identity(path: Path) -> tuple[int, int]:
    """What changes when a file is written again, whatever its content."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def lay(files: Mapping[str, str | bytes]) -> None:
    """Write files by their paths in the working folder, and the folders around them."""
    for name, content in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)


def read(source: str | list[str], **settings: Any) -> SourceCorpus:
    """Read a source with settings of the section data."""
    return read_data(DataConfig.model_validate({"source": source, **settings}))


def read_with_notices(source: str | list[str], **settings: Any) -> tuple[tuple[str, ...], list[str]]:
    """Return the documents of a source, and the notices about it."""
    corpus = read(source, **settings)
    return documents_of(corpus), list(corpus.notices())


def refused(source: str | list[str], match: str | None = None, **settings: Any) -> DataError:
    """Return the error of a source that is not read."""
    with pytest.raises(DataError, match=match) as raised:
        read(source, **settings)
    return raised.value


def no_home(_: str) -> Path:
    """Stand in for `cache_directory`, of a user without a home."""
    raise EnvironmentFailure("cache", "this user has no home directory")


def run_hint(error: DataError, behind: str = "", before: str = "; else ") -> None:
    """Run the command of a hint, which is between these words."""
    hint = error.hint or ""
    command = (hint.partition(behind)[2] if behind else hint).partition(before)[0]
    subprocess.run(command.replace("python3", shlex.quote(sys.executable)), shell=True, check=True)


def examples_of(config: Config) -> tuple[Examples, Examples]:
    """Return the questions and answers that a config trains on, and those that validate."""
    text = encode_parts(*read_split(config.data), config)
    assert isinstance(text.ids, Examples)
    assert isinstance(text.validation_ids, Examples)
    return text.ids, text.validation_ids


def error_lines(source: str) -> list[str]:
    """Read a source, which may be damaged, and return the lines of its error, if it has one."""
    try:
        read(source)
    except DataError as error:
        return error.lines()
    return []


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Cut a file off, or change one of its bits."""
    if draw.random() < 0.5:
        return content[: draw.randrange(len(content))]
    changed = bytearray(content)
    changed[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    return bytes(changed)
