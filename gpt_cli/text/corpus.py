"""From a SOURCE (file, directory, glob, stdin or catalogue name) to documents of text."""

from __future__ import annotations

import glob
import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpt_cli.config import DataConfig
from gpt_cli.errors import DataError, shown
from gpt_cli.files import read_bytes
from gpt_cli.text import catalogue

_HINT = "name a text file, a directory, a glob, - for stdin, or a name of `gpt data list`"


@dataclass(frozen=True)
class Corpus:
    """Documents in order, and what was left out on the way."""

    documents: tuple[str, ...]
    num_skipped: int = 0

    @property
    def num_characters(self) -> int:
        return sum(map(len, self.documents))

    def split(self, validation_fraction: float) -> tuple[Corpus, Corpus]:
        """Training and validation part: the last `validation_fraction` of the characters is validation."""
        remaining = self.num_characters - round(self.num_characters * validation_fraction)
        training, validation = [], []
        for document in self.documents:
            if remaining > 0:
                training.append(document[:remaining])
            if remaining < len(document):
                validation.append(document[max(remaining, 0) :])
            remaining -= len(document)
        return Corpus(tuple(training)), Corpus(tuple(validation))


def read_corpus(sources: str | Sequence[str]) -> Corpus:
    """The documents of one or more SOURCEs; raises DataError for missing, empty or non-UTF-8 ones."""
    documents: list[str] = []
    num_skipped = 0
    for source in [sources] if isinstance(sources, str) else sources:
        found, skipped = _read_source(source)
        documents += found
        num_skipped += skipped
    documents = [document for document in documents if document]
    if not documents:
        where = ", ".join([sources] if isinstance(sources, str) else sources)
        raise DataError(shown(where), "holds no text", hint=_HINT)
    return Corpus(tuple(documents), num_skipped)


def read_split(config: DataConfig) -> tuple[Corpus, Corpus]:
    """The training and the validation part of the text that a config names; raises DataError as `read_corpus` does."""
    return read_corpus(config.source).split(config.validation_fraction)


def decode_utf8(content: bytes, where: str) -> str:
    """Text from UTF-8 with or without a byte order mark; raises DataError that names byte and line."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        start = error.start + (3 if content.startswith(b"\xef\xbb\xbf") else 0)
        line = content.count(b"\n", 0, start) + 1
        wrong = f"byte 0x{content[start]:02x} at offset {start:,} is not UTF-8"
        hint = f"if it is {_likely_encoding(content)}: iconv -f {_likely_encoding(content)} -t utf-8 OLD > NEW"
        raise DataError(f"{where}: line {line:,}", wrong, "text is UTF-8", hint=hint) from None


def _likely_encoding(content: bytes) -> str:
    """A guess for a hint: a byte order mark tells, else Chinese text has mostly high bytes, and Latin-1 few."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "UTF-16"
    sample = content[:65536]
    return "GB18030" if sum(byte > 0x7F for byte in sample) > 0.3 * len(sample) else "LATIN1"


def _read_source(source: str) -> tuple[list[str], int]:
    if source == "-":
        return [decode_utf8(sys.stdin.buffer.read(), "stdin")], 0
    if source in catalogue.ENTRIES:
        return catalogue.read_entry(catalogue.ENTRIES[source]), 0
    path = Path(source)
    if os.path.isdir(source):  # false, not an error, for a name that is too long
        return _read_files(_files_below(path))
    if not os.path.exists(source) and (matches := sorted(glob.glob(source, recursive=True))):
        return _read_files(Path(match) for match in matches if Path(match).is_file())
    hint = _HINT
    if close := catalogue.nearest(source):
        hint = f"did you mean {close}? else {_HINT}"
    content = read_bytes(path, DataError, hint=hint)
    return list(_documents(path, _unpacked(path, content))), 0


def _files_below(directory: Path) -> Iterator[Path]:
    """Every file below a directory that is neither hidden nor a run's, in sorted order of its path."""
    for folder, subfolders, names in os.walk(directory):
        if "checkpoints" in subfolders and "config.yaml" in names:  # a run of ours, whose files are no corpus
            subfolders.clear()
            continue
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(folder, name)


def _read_files(paths: Iterator[Path] | Sequence[Path]) -> tuple[list[str], int]:
    """The documents of all text files, and how many other files (with a NUL byte at the start) there were."""
    documents: list[str] = []
    num_skipped = 0
    for path in sorted(paths):
        if not path.is_file():  # a broken link, a pipe, a socket
            num_skipped += 1
            continue
        content = _unpacked(path, read_bytes(path, DataError))
        if b"\0" in content[:8192]:
            num_skipped += 1
        else:
            documents += _documents(path, content)
    return documents, num_skipped


def _unpacked(path: Path, content: bytes) -> bytes:
    """The content of a file, decompressed where its name ends in .gz."""
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(shown(path), f"damaged gzip data, {error}") from error


def _documents(path: Path, content: bytes) -> Iterator[str]:
    """The documents of one file: a .jsonl file has one a line, any other is one."""
    where, name = str(path), path.name.removesuffix(".gz")
    text = decode_utf8(content, where)
    if not name.endswith(".jsonl"):
        yield text
        return
    # split at newlines alone: JSON text may hold U+2028, where splitlines would cut
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _text_field(line, f"{where}:{number}")


def _text_field(line: str, where: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(where, "not a JSON object", 'each line is one, such as {"text": "..."}') from error
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise DataError(where, 'has no field "text" with text in it', 'each line is like {"text": "..."}')
    try:
        record["text"].encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            where, f"half a character in its text at position {error.start}", "text is whole characters"
        ) from None
    return record["text"]
