"""A corpus is a text that can be streamed repeatedly, has a digest, and can be split for training and validation."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from gpt_cli.text.documents import TextBlock, part_of

# reading and encoding a shorter text is faster than looking in the cache
CACHE_FROM = 2_000_000  # characters
_BLOCK_CHARACTERS = 32  # the memory that a block takes in addition to its text, as a number of characters
# a thread with fewer bytes to hash waits for the interpreter longer than it hashes
HASHED_AT_ONCE = 2**20  # bytes
# receives a block of text in UTF-8
Watch = Callable[[bytes], object]


class Corpus(ABC):
    """A text that can be streamed any number of times, as a sequence of documents."""

    digest: str  # a sha256 that texts with equal documents share
    num_characters: int
    num_bytes: int  # of the documents in UTF-8

    @abstractmethod
    def blocks(self) -> Iterator[TextBlock]:
        """Yield all documents in order, each in one or more blocks; raise DataError if the text became unreadable."""

    @property
    @abstractmethod
    def whole(self) -> SurveyedCorpus:
        """The full corpus of which this corpus is a part, or this corpus itself if it is not a part."""

    @property
    def is_large(self) -> bool:
        """Whether the full corpus is so large that its token ids and its vocabulary are cached on disk."""
        return self.whole.num_characters >= CACHE_FROM

    def split(self, validation_fraction: float) -> tuple[Corpus, Corpus]:
        """Return the (training, validation) parts; validation gets the last `validation_fraction` of the characters."""
        at = self.num_characters - round(self.num_characters * validation_fraction)
        return CorpusPart(self, 0, at), CorpusPart(self, at, self.num_characters)


class CorpusPart(Corpus):
    """The characters start..end-1 of the corpus `of`, as a corpus of their own."""

    def __init__(self, of: Corpus, start: int, end: int):
        self._of, self._start, self._end = of, start, end
        self.digest = hashlib.sha256(f"{of.digest} {start} {end}".encode()).hexdigest()
        self.num_characters = end - start
        # approximate: as if all characters had equally many bytes
        self.num_bytes = round(of.num_bytes * self.num_characters / max(1, of.num_characters))

    @property
    def whole(self) -> SurveyedCorpus:
        return self._of.whole

    def blocks(self) -> Iterator[TextBlock]:
        return part_of(self._of.blocks(), self._start, self._end)


@dataclass(frozen=True)
class Survey:
    """The result of reading a whole corpus once: its digest, its size, and what was left out."""

    digest: str
    num_documents: int
    num_characters: int
    num_bytes: int
    num_skipped: int = 0  # files without text
    notes: tuple[str, ...] = ()  # which fields are the text, what was left out, and what else the user may want to know
    num_repeated: int = 0  # files named twice
    bad: tuple[str, ...] = ()
    fingerprint: str = ""  # differs after any change of a file, even if the change is undone


class SurveyedCorpus(Corpus):
    """A corpus that has been read once, so that its size and digest (its `survey`) are known."""

    def __init__(self, survey: Survey):
        self.survey, self.digest, self.num_bytes = survey, survey.digest, survey.num_bytes
        self.num_documents, self.num_characters = survey.num_documents, survey.num_characters

    @property
    def whole(self) -> SurveyedCorpus:
        return self

    def require_unchanged(self) -> None:
        """Raise DataError if a file of the text has changed since the text was read."""
        return


def fits_in_memory(num_characters: int, num_documents: int) -> bool:
    """Return whether a text is small enough to keep its documents in memory once they have been read."""
    return num_characters + _BLOCK_CHARACTERS * num_documents < CACHE_FROM


class Tally:
    """A running count and sha256 of documents, which also stores the documents as long as all fit in memory.

    The executor `worker` computes the sha256 in another thread while the caller reads on.
    """

    def __init__(self, worker: Executor) -> None:
        self._worker = worker
        self._digest = hashlib.sha256()
        self._num_documents = self._num_characters = self._num_bytes = 0
        self.line_ends = ""  # of the last file, if they differ from those of Unix: \r\n, or \r alone
        self.documents: list[TextBlock] | None = []

    def add_all(self, blocks: Iterator[TextBlock], watch: Watch = lambda _: None) -> None:
        """Add a file's documents; if reading them raises DataError, add none. `watch` receives each block as UTF-8."""
        digest, documents = self._digest.copy(), None if self.documents is None else list[TextBlock]()
        num_documents, num_characters, num_bytes = self._num_documents, self._num_characters, self._num_bytes
        held, num_held, line_ends = list[bytes](), 0, ""
        hashing: Future[None] | None = None
        for block in blocks:
            content = block.content
            if block.starts:
                num_documents += 1
                held.append(b"\xff")  # which UTF-8 never contains
            if held and num_held + len(content) > HASHED_AT_ONCE:
                if hashing:
                    hashing.result()
                hashing = self._worker.submit(digest.update, b"".join(held))
                held, num_held = [], 0
            held.append(content)
            num_held += len(content)
            num_characters += len(block.text)
            num_bytes += len(content)
            if documents is not None:
                documents.append(block)
                documents = documents if fits_in_memory(num_characters, num_documents) else None
            # the search for two bytes alone takes longer than all the rest
            if not line_ends and b"\r" in content and (b"\r\n" in content or b"\n" not in content):
                line_ends = "\r\n" if b"\n" in content else "\r"
            watch(content)
        if hashing:
            hashing.result()
        digest.update(b"".join(held))
        self._digest, self.line_ends = digest, line_ends
        self._num_documents, self._num_characters, self._num_bytes = num_documents, num_characters, num_bytes
        if documents is None or self.documents is None:
            self.documents = None
        else:
            self.documents += documents

    def survey(self) -> Survey:
        return Survey(self._digest.hexdigest(), self._num_documents, self._num_characters, self._num_bytes)
