"""From bytes to text: UTF-8, or an error that recognises what the bytes are instead."""

from __future__ import annotations

from gpt_cli.errors import DataError

_PARQUET = 'export its text column as .jsonl, one {"text": "..."} per line; Parquet is not supported yet'
# first bytes, with which no text begins -> the format, and how to get text out of it
_FORMATS: dict[bytes, tuple[str, str]] = {
    b"\x89PNG\r\n": ("a PNG picture", "name a text file"),
    b"\xff\xd8\xff": ("a JPEG picture", "name a text file"),
    b"GIF89a": ("a GIF picture", "name a text file"),
    b"%PDF-": ("a PDF document", "extract its text with: pdftotext FILE.pdf FILE.txt"),
    b"\xd0\xcf\x11\xe0": ("an Office document", "save it as plain text, UTF-8"),
    b"PK\x03\x04": ("a zip archive, as .docx and .epub are too", "unzip it, or save the document as plain text, UTF-8"),
    b"PAR1\x15": ("a Parquet table", _PARQUET),
    b"\x28\xb5\x2f\xfd": ("Zstandard data", "unpack it with: zstd -d FILE.zst; .zst is not supported yet"),
    b"\x1f\x8b": ("gzip data", "let the file name end in .gz"),
    b"BZh91AY&SY": ("bzip2 data", "unpack it with: bunzip2 FILE"),
    b"\xfd7zXZ\0": ("xz data", "unpack it with: unxz FILE"),
    b"7z\xbc\xaf": ("a 7z archive", "unpack it with: 7z x FILE"),
    b"SQLite format 3\0": ("an SQLite database", 'export its text as .jsonl, one {"text": "..."} per line'),
}


def decode_utf8(content: bytes, where: str) -> str:
    """Text from UTF-8 with or without a byte order mark.

    Raises DataError that names the format of a file that is not text, or the first byte that is not UTF-8 and its line.
    """
    if known := _known_format(content):
        raise DataError(where, f"this is {known[0]}, not text", hint=known[1])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_utf8(content, where, error.start) from None


def is_binary(content: bytes) -> bool:
    """Whether the start of a file shows that it is not text: a NUL byte, or the first bytes of a known format."""
    return b"\0" in content[:8192] or _known_format(content) is not None


def _known_format(content: bytes) -> tuple[str, str] | None:
    return next((found for start, found in _FORMATS.items() if content.startswith(start)), None)


def _not_utf8(content: bytes, where: str, at: int) -> DataError:
    start = at + (3 if content.startswith(b"\xef\xbb\xbf") else 0)
    line = content.count(b"\n", 0, start) + 1
    sentence = f"text must be UTF-8, but byte 0x{content[start]:02x} at offset {start:,} is not"
    encoding = _likely_encoding(content)
    hint = f"if it is {encoding}: iconv -f {encoding} -t utf-8 OLD > NEW"
    return DataError(f"{where}: line {line:,}", sentence, hint=hint)


def _likely_encoding(content: bytes) -> str:
    """A guess for the hint: by the byte order mark, else Chinese text has mostly high bytes, and Latin-1 few."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "UTF-16"
    sample = content[:65536]
    return "GB18030" if sum(byte > 0x7F for byte in sample) > 0.3 * len(sample) else "LATIN1"
