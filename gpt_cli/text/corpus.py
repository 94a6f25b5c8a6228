"""A corpus: documents that can be streamed as often as needed, their digest, and the split for validation."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass

from gpt_cli.errors import DataError, counted, shown
from gpt_cli.text.blocks import Block, in_blocks, part_of
from gpt_cli.text.manifest import Survey

# reading and encoding a shorter text is faster than looking in the cache, and its documents are held once they are read
CACHE_FROM = 2_000_000  # characters
_BLOCK_CHARACTERS = 32  # as many take the memory that a block takes beside its text
# a thread that has less to hash waits longer for the interpreter than it hashes
HASHED_AT_ONCE = 2**20  # bytes
# receives a block of text in UTF-8
Watch = Callable[[bytes], object]


class Corpus(ABC):
    """A text that can be streamed again and again: `blocks` are its documents, `digest` names its content."""

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """The documents from the first to the last; raises DataError where the text has become unreadable."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """A sha256 that texts with equal documents share."""

    @property
    @abstractmethod
    def num_characters(self) -> int: ...

    @property
    @abstractmethod
    def num_bytes(self) -> int:
        """The bytes of the documents in UTF-8."""

    @property
    def whole(self) -> Corpus:
        """The text that this is a part of, which must be read to reach it."""
        return self

    @property
    def fingerprint(self) -> str:
        """What is another as soon as one of the files changes, even if it changes back."""
        return ""

    def require_unchanged(self) -> None:
        """Raise DataError where the text is no longer the one whose digest this is."""
        return

    @property
    def documents(self) -> tuple[str, ...]:
        """All documents in memory: for small texts."""
        documents: list[list[str]] = []
        for block in self.blocks():
            if block.starts:
                documents.append([])
            documents[-1].append(block.text)
        return tuple(map("".join, documents))

    def split(self, validation_fraction: float) -> tuple[Corpus, Corpus]:
        """Training and validation part: the last `validation_fraction` of the characters is validation."""
        at = self.num_characters - round(self.num_characters * validation_fraction)
        return Part(self, 0, at), Part(self, at, self.num_characters)


@dataclass(frozen=True)
class Part(Corpus):
    """The characters start..end-1 of a corpus."""

    of: Corpus
    start: int
    end: int

    @property
    def whole(self) -> Corpus:
        return self.of.whole

    def blocks(self) -> Iterator[Block]:
        return part_of(self.of.blocks(), self.start, self.end)

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.of.digest} {self.start} {self.end}".encode()).hexdigest()

    @property
    def num_characters(self) -> int:
        return self.end - self.start

    @property
    def num_bytes(self) -> int:
        """About: all characters count as equally long."""
        return round(self.of.num_bytes * self.num_characters / max(1, self.of.num_characters))

    @property
    def fingerprint(self) -> str:
        return self.of.fingerprint

    def require_unchanged(self) -> None:
        self.of.require_unchanged()


class SurveyedCorpus(Corpus):
    """A corpus over which one pass was made."""

    survey: Survey

    @property
    def digest(self) -> str:
        return self.survey.digest

    @property
    def num_characters(self) -> int:
        return self.survey.num_characters

    @property
    def num_bytes(self) -> int:
        return self.survey.num_bytes

    @property
    def num_documents(self) -> int:
        return self.survey.num_documents

    @property
    def fingerprint(self) -> str:
        return self.survey.fingerprint

    def notices(self) -> Iterator[str]:
        """A line for each kind of file that was left out."""
        survey = self.survey
        if survey.num_skipped:
            yield f"left out {counted(survey.num_skipped, 'file')} without text"
        if survey.num_repeated:
            yield f"left out {counted(survey.num_repeated, 'repeated source')}: each text is read once"
        if survey.bad:
            yield f"left out {counted(len(survey.bad), 'bad file')}, the first being {shown(survey.bad[0])}"


class Texts(SurveyedCorpus):
    """Documents that are in memory."""

    def __init__(self, documents: Sequence[str]):
        self._documents = documents
        with ThreadPoolExecutor(1) as worker:
            tally = Tally(worker)
            tally.add_all(self.blocks())
        self.survey = tally.survey()

    def blocks(self) -> Iterator[Block]:
        return in_blocks(self._documents)


def is_short(num_characters: int, num_documents: int) -> bool:
    """Whether the documents of a text are held in memory once they have been read."""
    return num_characters + _BLOCK_CHARACTERS * num_documents < CACHE_FROM


class Tally:
    """Counts documents, makes a digest of them, and keeps them while they are few.

    `worker` is a thread that hashes while this one reads on.
    """

    def __init__(self, worker: Executor) -> None:
        self._worker = worker
        self._digest = hashlib.sha256()
        self._num_documents = self._num_characters = self._num_bytes = 0
        self.kept: list[Block] | None = []

    def add_all(self, blocks: Iterator[Block], watch: Watch = lambda _: None) -> None:
        """Add the documents of a file; of a bad one, which raises DataError, nothing stays."""
        before, num_kept = self.__dict__ | {"_digest": self._digest.copy()}, len(self.kept or ())
        try:
            self._add_all(blocks, watch)
        except DataError:
            self.__dict__ = before
            if self.kept is not None:
                del self.kept[num_kept:]
            raise

    def _add_all(self, blocks: Iterator[Block], watch: Watch) -> None:
        held, num_held = list[bytes](), 0
        hashing: Future[None] | None = None
        for block in blocks:
            content = block.content
            if block.starts:
                self._num_documents += 1
                held.append(b"\xff")  # which UTF-8 never contains
            if held and num_held + len(content) > HASHED_AT_ONCE:
                if hashing:
                    hashing.result()
                hashing = self._worker.submit(self._digest.update, b"".join(held))
                held, num_held = [], 0
            held.append(content)
            num_held += len(content)
            self._num_characters += len(block.text)
            self._num_bytes += len(content)
            if self.kept is not None:
                self.kept.append(block)
                if not is_short(self._num_characters, self._num_documents):
                    self.kept = None
            watch(content)
        if hashing:
            hashing.result()
        self._digest.update(b"".join(held))

    def survey(self) -> Survey:
        return Survey(self._digest.hexdigest(), self._num_documents, self._num_characters, self._num_bytes)
