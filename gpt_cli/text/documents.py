"""Stream text in blocks (parts of documents): decode bytes, and split, cut and group blocks.

No document needs to fit in memory. For bytes that are not UTF-8, the DataError names the file format if gpt knows it.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpt_cli.common.untrusted_files import (
    UTF8_MARK,
    encoding_hint,
    is_binary,
    is_damaged_utf8,
    is_numbers,
    names_of_copy,
    utf16_of,
)
from gpt_cli.errors import DataError, visible

# the regex engine overflows its stack on a run of a million spaces, but not on a third of a million
MAX_PIECE = 32_768  # characters
GROUP_CHARACTERS = 2**20
# first bytes, with which no text begins -> the format, and how to get text out of it
_FORMATS: dict[bytes, tuple[str, str]] = {
    b"\x89PNG\r\n": ("a PNG picture", "name a text file"),
    b"\xff\xd8\xff": ("a JPEG picture", "name a text file"),
    b"GIF89a": ("a GIF picture", "name a text file"),
    b"\x7fELF": ("a program", "name a text file"),
    b"%PDF-": ("a PDF document", "give the file a name that ends in .pdf"),
    b"\xd0\xcf\x11\xe0": ("an old Office document", "save it as plain text, UTF-8"),
    b"{\\rtf": ("an RTF document", "give the file a name that ends in .rtf"),
    b"PAR1\x15": ("a Parquet table", "give the file a name that ends in .parquet"),
    b"\x28\xb5\x2f\xfd": ("Zstandard data", "give the file a name that ends in .zst"),
    b"\x1f\x8b": ("gzip data", "give the file a name that ends in .gz"),
    b"BZh91AY&SY": ("bzip2 data", "unpack it with: bunzip2 FILE"),
    b"\xfd7zXZ\0": ("xz data", "unpack it with: unxz FILE"),
    b"7z\xbc\xaf": ("a 7z archive", "unpack it with: 7z x FILE"),
    b"Rar!\x1a\x07": ("a RAR archive", "unpack it with: unrar x FILE"),
    b"SQLite format 3\0": ("an SQLite database", 'export its text as .jsonl, one {"text": "..."} per line'),
}
# what a zip archive contains -> how to get text out of it
_ZIP_START = rb"PK\x03\x04.{26}"
_ZIPPED = {
    rb"word/": "give the file a name that ends in .docx",
    rb"mimetypeapplication/epub": "give the file a name that ends in .epub",
    rb"mimetypeapplication/vnd.oasis.opendocument.text": "give the file a name that ends in .odt",
    rb"(xl/|mimetypeapplication/vnd.oasis.opendocument.spreadsheet)": "save it as .csv in the program that wrote it",
    rb"(ppt/|Index/|mimetypeapplication/vnd.oasis.opendocument.presentation)": "save it as .pdf",
    rb"[^\0]{,200}\.txt": "give the file a name that ends in .zip",
}
# marks between texts in the data of GPT-2 and of programs like it, with the line break before
_MARK = re.compile(r"(?:\r?\n)?<\|(?:endoftext|startoftext)\|>")
_UNFINISHED = re.compile(r"(?:\r?\n|\r)?(?:<(?:\|[a-z]{0,11}\|?)?)?\Z")
_LONGEST_MARK = len("\r\n<|startoftext|>")
_TAG = re.compile(r"</?[A-Za-z][\w:-]*(?:\s[^<>\n]{0,200}=[^<>\n]{0,200})?\s?/?>")  # no <a@b.c>, no <a few words>
_MARKUP_LINES = {
    re.compile(r"(\d\d:)?\d\d:\d\d[.,]\d{3} --> |\[\d\d:\d\d[.:]\d\d|Dialogue: \d,"): "time lines of subtitles",
    re.compile(r"\.[A-Za-z]{1,2}\b"): "requests of troff",
}
_AROUND = 32768  # bytes on each side of a wrong byte


class TextBlock(NamedTuple):
    """A part of a document, never empty; `starts` is True for the first block of a document."""

    starts: bool
    text: str
    utf8: bytes | None = None  # the bytes that were read, if they equal the encoded text

    @property
    def content(self) -> bytes:
        """The text of the block, encoded as UTF-8."""
        return self.text.encode("utf-8") if self.utf8 is None else self.utf8


_END = TextBlock(True, "")  # behind all blocks, so that the last document ends as the others do


def in_blocks(documents: Iterable[str]) -> Iterator[TextBlock]:
    """Yield each non-empty document as one block."""
    return (TextBlock(True, document) for document in documents if document)


def decode_utf8(content: bytes, where: str) -> str:
    """Return the text of UTF-8 bytes, without byte order mark; for other bytes, raise DataError that names `where`."""
    return "".join(block.text for block in decoded([content], where))


def decoded(blocks: Iterable[bytes], where: str, unnamed: str = "name a text file") -> Iterator[TextBlock]:
    """Decode the UTF-8 bytes of one document, and yield its text in blocks, without byte order mark.

    The first block shows the file format; it must have at least 8,192 bytes, unless the document is shorter. Raises
    DataError, located by `where` (a path or stdin), for a binary format, for UTF-16, and at the first byte that is not
    UTF-8. If the hint would be to rename the file, but `where` is stdin or has that ending, the hint is `unnamed`.
    """
    sample, before, rest, num_bytes, num_lines, starts = b"", b"", b"", 0, 0, True
    for number, block in enumerate(chain(blocks, [None])):
        if number == 0 and block is not None:
            if file_format := _binary_format(block):
                what, advice = file_format
                _, rename, ending = advice.partition("give the file a name that ends in ")
                advice = advice.replace("FILE", names_of_copy(Path(where))[0])
                if rename and (where == "stdin" or where.lower().endswith(ending)):
                    advice = unnamed
                raise DataError(where, f"this is {what}, not text", hint=advice)
            sample = block[:65536]
            if _is_utf16(sample):
                raise DataError(where, "this is UTF-16, but text must be UTF-8", hint=encoding_hint(sample, where))
            if block.startswith(UTF8_MARK):
                block, num_bytes = block[len(UTF8_MARK) :], len(UTF8_MARK)
        content = rest + (block or b"")
        try:
            text, used = codecs.utf_8_decode(content, "strict", block is None)
        except UnicodeDecodeError as error:
            byte, at = content[error.start], num_bytes + error.start
            line = num_lines + content.count(b"\n", 0, error.start) + 1
            # if a text begins in ASCII, the bytes around the wrong one show more than the beginning
            around = before + content[max(0, error.start - _AROUND) : error.start + _AROUND]
            evidence = sample if b"\0" in sample or not sample.isascii() else around
            sentence = f"text must be UTF-8, but byte 0x{byte:02x} at offset {at:,} is not"
            if is_damaged_utf8(evidence):
                sentence = f"this is UTF-8 that is damaged or cut off at byte 0x{byte:02x}, offset {at:,}"
            raise DataError(f"{where}: line {line:,}", sentence, hint=encoding_hint(evidence, where)) from None
        if text:
            yield TextBlock(starts, text, content[:used])
            starts = False
            num_bytes += used
            # bytes.count takes four times as long
            num_lines += int(np.count_nonzero(np.frombuffer(content, np.uint8) == ord("\n")))
        before, rest = content[max(0, used - _AROUND) : used], content[used:]


def format_of_binary(content: bytes) -> str | None:
    """Return the format of a binary file by its first bytes, `content`; "not text" if it is unknown, None for text."""
    if binary_format := _binary_format(content):
        return binary_format[0]
    return "not text" if b"\0" in content[:8192] and not _is_utf16(content[:65536]) else None


def bytes_counted(blocks: Iterable[TextBlock], count: Callable[[int], object]) -> Iterator[TextBlock]:
    """Yield the blocks unchanged; `count` receives a block's size in bytes when the caller asks for the next block."""
    for block in blocks:
        yield block
        count(len(block.content))


def markup_noted(blocks: Iterator[TextBlock], note: Callable[[str], object]) -> Iterator[TextBlock]:
    """Yield the blocks unchanged; `note` receives a remark if over a tenth of the first block is markup (tags)."""
    if first := next(blocks, None):
        lines = first.text.split("\n")
        for pattern, what in _MARKUP_LINES.items():
            if sum(bool(pattern.match(line)) for line in lines) > len(lines) / 10 > 0.3:
                note(f"{what} become tokens")
        tags = _TAG.findall(first.text) if "</" in first.text else []
        if sum(map(len, tags)) > len(first.text) / 10:
            note(f"more than a tenth is tags such as {visible(tags[0], 20)}, which become tokens")
        yield first
        yield from blocks


def _is_utf16(sample: bytes) -> bool:
    """Return whether bytes are UTF-16: they have a byte order mark, or over 40% NULs (which are valid UTF-8, too)."""
    is_marked = sample.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE))
    return (is_marked or (len(sample) >= 16 and sample.count(0) > 0.4 * len(sample))) and bool(utf16_of(sample))


def _binary_format(content: bytes) -> tuple[str, str] | None:
    """Return (format, advice on how to get its text) of a binary file, given its first bytes; None for a text file."""
    if content.startswith(b"PK\x03\x04"):
        kinds = (advice for name, advice in _ZIPPED.items() if re.search(_ZIP_START + name, content[:65536], re.DOTALL))
        return "a zip archive, as office documents and books are too", next(kinds, "name a text file")
    if known := next((name_and_hint for start, name_and_hint in _FORMATS.items() if content.startswith(start)), None):
        return known
    if len(content) < 16 or b"\0" not in content or not is_binary(content[:65536]):
        return None
    if is_numbers(content[:65536]):
        return "an array of numbers, such as token ids", "name the text; gpt cuts it into tokens by itself"
    return "binary data", "name a text file"


def split_at(separator: str, blocks: Iterable[TextBlock]) -> Iterator[TextBlock]:
    """Split documents at each `separator` (its \\n also matches \\r\\n) into smaller ones; leave out blank parts."""
    pattern = re.compile(re.escape(separator).replace("\\\n", "\r?\n"))
    # a separator may begin in one block and end in the next
    num_held = len(separator) + separator.count("\n") - 1
    return _split(blocks, pattern.split, lambda text: min(len(text), num_held), are_marks=False)


def split_at_marks(blocks: Iterable[TextBlock], note: Callable[[str], object]) -> Iterator[TextBlock]:
    """Split texts into documents at <|endoftext|> and <|startoftext|>; drop these marks and adjacent line breaks.

    Texts without such a mark stay as they are, block by block; `note` receives a line for each block with a mark.
    """

    def split(text: str) -> list[str]:
        parts = _MARK.split(text) if "<|" in text else [text]  # the search alone is several times as fast
        if len(parts) > 1:
            note("<|endoftext|> is between documents")
        return parts

    def num_held(text: str) -> int:
        """Return how many characters at the end of `text` may begin a mark, or the line break before a mark."""
        return len(_UNFINISHED.search(text[-_LONGEST_MARK:])[0])  # pyright: ignore[reportOptionalSubscript]

    return _split(blocks, split, num_held, are_marks=True)


def _split(
    blocks: Iterable[TextBlock], split: Callable[[str], list[str]], num_held: Callable[[str], int], *, are_marks: bool
) -> Iterator[TextBlock]:
    """Split documents at separators by `split`; leave out blank parts (with `are_marks`, only those after a mark).

    `num_held(text)` returns the number of last characters that may begin a separator, which the next block completes.
    """
    held, white, starts, skips_white = "", "", True, not are_marks
    for block in chain(blocks, [_END]):
        if block.starts:
            if held.strip() or (held and not skips_white):
                yield TextBlock(starts, white + held)
            held, white, starts, skips_white = "", "", True, not are_marks
        parts = split(held + block.text)
        end = len(parts[-1]) - num_held(parts[-1])
        if len(parts) == 1 and not held and not skips_white and end == len(block.text) > 0:
            yield block
            starts = False
            continue
        held, parts[-1] = parts[-1][end:], parts[-1][:end]
        for number, part in enumerate(parts):
            if number:
                white, starts, skips_white = "", True, True
            if skips_white and not part.strip():  # a document of white space alone, unless more comes
                white += part
                continue
            if skips_white and are_marks:
                part, white = (white + part).removeprefix("\r").removeprefix("\n"), ""
            if white or part:
                yield TextBlock(starts, white + part)
                white, starts, skips_white = "", False, False


def part_of(blocks: Iterable[TextBlock], start: int, end: int) -> Iterator[TextBlock]:
    """Yield the blocks of characters start..end-1 of a text; a document that crosses `start` begins at `start`."""
    position, begun = 0, False
    for block in blocks:
        if position >= end:
            return
        if text := block.text[max(0, start - position) : end - position]:
            yield TextBlock(block.starts or not begun, text, block.utf8 if text == block.text else None)
            begun = True
        position += len(block.text)


def split_document(text: str) -> Iterator[str]:
    """Yield a document in pieces of at most MAX_PIECE characters, cut at newlines where possible."""
    return (piece.text for piece in in_pieces([TextBlock(True, text)]))


def at_line(text: str, at: int) -> int | None:
    """Return the end of the piece from `at`: after its last newline, else at + MAX_PIECE; None for the last piece."""
    if len(text) - at <= MAX_PIECE:
        return None
    newline = text.rfind("\n", at, at + MAX_PIECE)
    return newline + 1 if newline >= 0 else at + MAX_PIECE


def in_pieces(blocks: Iterable[TextBlock], cut: Callable[[str, int], int | None] = at_line) -> Iterator[TextBlock]:
    """Yield each document in pieces, the units of tokenization; a piece may span several blocks.

    `cut(text, start)` returns the end of the piece that begins at `start`; None if the next block may continue it.
    """
    text, starts = "", True
    for block in chain(blocks, [_END]):
        if block.starts:
            if text:
                yield TextBlock(starts, text)
            text, starts = "", True
        text, at = text + block.text, 0
        while (end := cut(text, at)) is not None:
            yield TextBlock(starts, text[at:end])
            at, starts = end, False
        text = text[at:]


def in_groups(pieces: Iterable[TextBlock]) -> Iterator[list[TextBlock]]:
    """Yield lists of pieces; each list has about GROUP_CHARACTERS characters, enough work for a thread."""
    group, num_characters = list[TextBlock](), 0
    for piece in pieces:
        group.append(piece)
        num_characters += len(piece.text) + 32  # a piece takes memory in addition to its text
        if num_characters >= GROUP_CHARACTERS:
            yield group
            group, num_characters = [], 0
    if group:
        yield group
