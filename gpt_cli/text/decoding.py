"""From bytes to text: UTF-8, or an error that recognises what the bytes are instead."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from gpt_cli.errors import DataError
from gpt_cli.text.blocks import Block

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# first bytes, with which no text begins -> the format, and how to get text out of it
_FORMATS: dict[bytes, tuple[str, str]] = {
    b"\x89PNG\r\n": ("a PNG picture", "name a text file"),
    b"\xff\xd8\xff": ("a JPEG picture", "name a text file"),
    b"GIF89a": ("a GIF picture", "name a text file"),
    b"%PDF-": ("a PDF document", "extract its text with: pdftotext FILE.pdf FILE.txt"),
    b"\xd0\xcf\x11\xe0": ("an Office document", "save it as plain text, UTF-8"),
    b"PK\x03\x04": ("a zip archive, as .docx and .epub are too", "unzip it, or save the document as plain text, UTF-8"),
    b"PAR1\x15": ("a Parquet table", "let the file name end in .parquet"),
    b"\x28\xb5\x2f\xfd": ("Zstandard data", "let the file name end in .zst"),
    b"\x1f\x8b": ("gzip data", "let the file name end in .gz"),
    b"BZh91AY&SY": ("bzip2 data", "unpack it with: bunzip2 FILE"),
    b"\xfd7zXZ\0": ("xz data", "unpack it with: unxz FILE"),
    b"7z\xbc\xaf": ("a 7z archive", "unpack it with: 7z x FILE"),
    b"SQLite format 3\0": ("an SQLite database", 'export its text as .jsonl, one {"text": "..."} per line'),
}
_STARTS = tuple(_FORMATS)


def decode_utf8(content: bytes, where: str) -> str:
    """Text from UTF-8 with or without a byte order mark; raises DataError as `decoded` does."""
    return "".join(block.text for block in decoded([content], where))


def decoded(blocks: Iterable[bytes], where: str, hint: str | None = None) -> Iterator[Block]:
    """One document from UTF-8, with or without a byte order mark; the first block has 8,192 bytes, or is the last.

    Raises DataError that names the format of a file that is not text, with its own hint or `hint`, or the first byte
    that is not UTF-8 and its line.
    """
    sample, rest, num_bytes, num_lines, starts = b"", b"", 0, 0, True
    for number, block in enumerate(chain(blocks, [None])):
        if number == 0 and block is not None:
            if known := _known_format(block):
                raise DataError(where, f"this is {known[0]}, not text", hint=hint or known[1])
            sample = block[:65536]
            if block.startswith(_BYTE_ORDER_MARK):
                block, num_bytes = block[len(_BYTE_ORDER_MARK) :], len(_BYTE_ORDER_MARK)
        content = rest + (block or b"")
        try:
            text, used = codecs.utf_8_decode(content, "strict", block is None)
        except UnicodeDecodeError as error:
            line = num_lines + content.count(b"\n", 0, error.start) + 1
            raise _not_utf8(content[error.start], num_bytes + error.start, f"{where}: line {line:,}", sample) from None
        if text:
            yield Block(starts, text, content[:used])
            starts = False
            num_bytes, num_lines = num_bytes + used, num_lines + _num_lines(content)
        rest = content[used:]


def is_binary(content: bytes) -> bool:
    """Whether the start of a file shows that it is not text: a NUL byte, or the first bytes of a known format."""
    return b"\0" in content[:8192] or _known_format(content) is not None


def _num_lines(content: bytes) -> int:
    # bytes.count takes four times as long
    return int(np.count_nonzero(np.frombuffer(content, np.uint8) == ord("\n")))


def _known_format(content: bytes) -> tuple[str, str] | None:
    if not content.startswith(_STARTS):  # of a million files, hardly any
        return None
    return next(found for start, found in _FORMATS.items() if content.startswith(start))


def _not_utf8(byte: int, at: int, where: str, sample: bytes) -> DataError:
    sentence = f"text must be UTF-8, but byte 0x{byte:02x} at offset {at:,} is not"
    encoding = _likely_encoding(sample)
    return DataError(where, sentence, hint=f"if it is {encoding}: iconv -f {encoding} -t utf-8 OLD > NEW")


def _likely_encoding(sample: bytes) -> str:
    """A guess for the hint: by the byte order mark, else Chinese text has mostly high bytes, and Latin-1 few."""
    if sample[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "UTF-16"
    return "GB18030" if sum(byte > 0x7F for byte in sample) > 0.3 * len(sample) else "LATIN1"
