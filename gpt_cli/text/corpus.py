"""From a SOURCE (file, directory, glob, stdin or catalogue name) to documents of text."""

from __future__ import annotations

import glob
import gzip
import json
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpt_cli.config import DataConfig
from gpt_cli.errors import DataError, EnvironmentFailure, counted, shown
from gpt_cli.files import read_bytes, reason
from gpt_cli.text import catalogue
from gpt_cli.text.decoding import decode_utf8, is_binary

_HINT = "name a text file, a directory, a glob, - for stdin, or a name of `gpt data list`"


@dataclass(frozen=True)
class Corpus:
    """Documents in order, and how many files were left out: those without text, and those named twice."""

    documents: tuple[str, ...]
    num_skipped: int = 0
    num_repeated: int = 0

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

    def notices(self) -> Iterator[str]:
        """A line for each kind of file that was left out."""
        if self.num_skipped:
            yield f"left out {counted(self.num_skipped, 'file')} without text"
        if self.num_repeated:
            yield f"left out {counted(self.num_repeated, 'repeated source')}: each text is read once"


def read_corpus(sources: str | Sequence[str], separator: str | None = None) -> Corpus:
    """The documents of one or more SOURCEs, each file once; `separator` splits them into shorter ones.

    Raises DataError for a source that is missing, contains no text or is not UTF-8, and EnvironmentFailure for one
    that the user may not read.
    """
    names = [sources] if isinstance(sources, str) else sources
    reading = _Reading()
    documents = [part for name in names for document in reading.source(name) for part in _split(document, separator)]
    if not documents:
        raise DataError(shown(", ".join(names)), "this source contains no text", hint=_HINT)
    return Corpus(tuple(documents), reading.num_skipped, reading.num_repeated)


def read_data(config: DataConfig) -> Corpus:
    """The text that a config names; raises errors as `read_corpus` does."""
    return read_corpus(config.source, config.separator)


def read_split(config: DataConfig) -> tuple[Corpus, Corpus]:
    """The training and the validation part of the text that a config names; raises errors as `read_corpus` does."""
    return read_data(config).split(config.validation_fraction)


def _split(document: str, separator: str | None) -> list[str]:
    """The parts of a document that are not empty; a newline of the separator matches that of Windows too."""
    if separator is None:
        return [document] if document else []
    pattern = re.escape(separator).replace("\\\n", "\r?\n")
    return [part for part in re.split(pattern, document) if part.strip()]


class _Reading:
    """Reads sources one after another, and each file once, whatever names and links lead to it."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.num_skipped = self.num_repeated = 0

    def source(self, name: str) -> list[str]:
        """The documents of one SOURCE."""
        if name == "-" or name in catalogue.ENTRIES:
            return self._named(name) if self._once(name) else []
        name = os.path.expanduser(name)
        if os.path.isdir(name):  # false, not an error, for a name that is too long
            return self._files(_files_below(Path(name)))
        if not os.path.exists(name) and (matches := glob.glob(name, recursive=True)):
            return self._files(Path(match) for match in matches if os.path.isfile(match))
        close = catalogue.nearest(name)
        path = Path(name)
        content = read_bytes(path, DataError, hint=f"did you mean {close}? else {_HINT}" if close else _HINT)
        return list(_documents(path, _unpacked(path, content))) if self._once(os.path.realpath(path)) else []

    def _named(self, name: str) -> list[str]:
        if name == "-":
            return [decode_utf8(sys.stdin.buffer.read(), "stdin")]
        return catalogue.read_entry(catalogue.ENTRIES[name])

    def _files(self, paths: Iterable[Path]) -> list[str]:
        """The documents of all text files, in sorted order of their paths; other files are counted."""
        documents: list[str] = []
        for path in sorted(paths):
            if not path.is_file():  # a broken link, a pipe, a socket
                self.num_skipped += 1
            elif self._once(os.path.realpath(path)):
                content = _unpacked(path, read_bytes(path, DataError))
                if is_binary(content):
                    self.num_skipped += 1
                else:
                    documents += _documents(path, content)
        return documents

    def _once(self, identity: str) -> bool:
        """Whether this is the first time; every other time is counted."""
        if identity in self.seen:
            self.num_repeated += 1
            return False
        self.seen.add(identity)
        return True


def _files_below(directory: Path) -> Iterator[Path]:
    """Every file below a directory that is neither hidden nor a run's; links to directories are not followed.

    Raises EnvironmentFailure for a directory that the user may not read.
    """

    def refuse(error: OSError) -> None:
        where = f"reading {shown(error.filename or directory)}"
        raise EnvironmentFailure(where, reason(error), hint="make it readable, or name the files to read") from error

    for folder, subfolders, names in os.walk(directory, onerror=refuse):
        if "checkpoints" in subfolders and "config.yaml" in names:  # one of our runs, whose files are not a corpus
            subfolders.clear()
            continue
        subfolders[:] = (name for name in subfolders if not name.startswith("."))
        for name in names:
            if not name.startswith("."):
                yield Path(folder, name)


def _unpacked(path: Path, content: bytes) -> bytes:
    """The content of a file, decompressed where its name ends in .gz."""
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(shown(path), f"the gzip data is damaged: {error}") from error


def _documents(path: Path, content: bytes) -> Iterator[str]:
    """The documents of one file: one per line in a .jsonl file, one in any other."""
    where, name = str(path), path.name.removesuffix(".gz")
    text = decode_utf8(content, where)
    if not name.endswith(".jsonl"):
        yield text
        return
    # split at newlines alone: JSON text may contain U+2028, where splitlines would cut
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _text_field(line, f"{where}:{number}")


def _text_field(line: str, where: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(where, 'this is not JSON; each line is an object such as {"text": "..."}') from error
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise DataError(where, 'this line has no field "text" that contains text, as {"text": "..."} has')
    try:
        record["text"].encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(where, f"the text has half a character at position {error.start}") from None
    return record["text"]
