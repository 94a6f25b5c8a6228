"""Text as a stream: documents in blocks, and what cuts, splits and groups them without ever holding one as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# the regex engine overflows its stack on a run of a million spaces; a third of it is known to pass
MAX_PIECE = 32_768  # characters
GROUP_CHARACTERS = 2**20


class Block(NamedTuple):
    """A part of a document, never empty; `starts` where it is the first of its document."""

    starts: bool
    text: str
    utf8: bytes | None = None  # the text as it was read, where that is what encoding it gives

    @property
    def content(self) -> bytes:
        """The text in UTF-8."""
        return self.text.encode("utf-8") if self.utf8 is None else self.utf8


def in_blocks(documents: Iterable[str]) -> Iterator[Block]:
    """Documents that are in memory, each as one block; empty ones are left out."""
    return (Block(True, document) for document in documents if document)


def split_at(separator: str, blocks: Iterable[Block]) -> Iterator[Block]:
    """The parts of documents between separators, as documents; those of white space alone are left out.

    A newline of the separator matches that of Windows too.
    """
    pattern = re.compile(re.escape(separator).replace("\\\n", "\r?\n"))
    # a separator may begin in one block and end in the next
    longest = len(separator) + separator.count("\n")
    rest, held, starts = "", list[str](), True  # held is white space, which may be all that a part has

    def released(text: str) -> Iterator[Block]:
        nonlocal held, starts
        held.append(text)
        if not starts or text.strip():
            if whole := "".join(held):
                yield Block(starts, whole)
            held, starts = [], False

    for block in blocks:
        if block.starts:
            yield from released(rest)
            rest, held, starts = "", [], True
        text, done = rest + block.text, 0
        for match in pattern.finditer(text):
            yield from released(text[done : match.start()])
            held, starts, done = [], True, match.end()
        kept = max(done, len(text) - longest + 1)
        yield from released(text[done:kept])
        rest = text[kept:]
    yield from released(rest)


def part_of(blocks: Iterable[Block], start: int, end: int) -> Iterator[Block]:
    """The characters start..end-1 of a text; a document that begins before them begins with the first of them."""
    position, begun = 0, False
    for block in blocks:
        if position >= end:
            return
        if start <= position and position + len(block.text) <= end and (begun or block.starts):
            yield block
            begun, position = True, position + len(block.text)
            continue
        begun = begun and not block.starts
        text = block.text[max(0, start - position) : end - position]
        position += len(block.text)
        if text:
            yield Block(not begun, text)
            begun = True


def pieces(text: str) -> Iterator[str]:
    """A document in pieces of at most MAX_PIECE characters, cut after a newline where there is one."""
    return (piece.text for piece in in_pieces([Block(True, text)]))


def in_pieces(blocks: Iterable[Block]) -> Iterator[Block]:
    """Documents in pieces, cut as `pieces` cuts each: the units that are tokenized, whatever the blocks."""
    text, starts = "", True
    for block in blocks:
        if block.starts:
            if text:
                yield Block(starts, text)
            text, starts = "", True
        text, at = text + block.text, 0
        while len(text) - at > MAX_PIECE:
            newline = text.rfind("\n", at, at + MAX_PIECE)
            cut = newline + 1 if newline >= 0 else at + MAX_PIECE
            yield Block(starts, text[at:cut])
            at, starts = cut, False
        text = text[at:]
    if text:
        yield Block(starts, text)


def in_groups(pieces: Iterable[Block]) -> Iterator[list[Block]]:
    """Pieces in lists of about GROUP_CHARACTERS characters: enough for a thread to work on."""
    group, num_characters = list[Block](), 0
    for piece in pieces:
        group.append(piece)
        num_characters += len(piece.text) + 32  # a piece takes memory of its own
        if num_characters >= GROUP_CHARACTERS:
            yield group
            group, num_characters = [], 0
    if group:
        yield group
