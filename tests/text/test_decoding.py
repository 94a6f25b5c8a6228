from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import pytest

from gpt_cli.errors import DataError
from gpt_cli.text.decoding import decode_utf8
from gpt_cli.text.reading import read_corpus


def refusal(content: bytes) -> list[str]:
    with pytest.raises(DataError) as raised:
        decode_utf8(content, "a.txt")
    return raised.value.lines()


@pytest.mark.parametrize(
    ("content", "line", "byte", "encoding"),
    [
        (b"ab\ncd\xe9f", 2, "0xe9 at offset 5", "LATIN1"),
        (b"\xef\xbb\xbf\xff", 1, "0xff at offset 3", "GB18030"),
        ("今天".encode("utf-16"), 1, "0xff at offset 0", "UTF-16"),
        ("今天天气很好".encode("gb18030"), 1, "0xbd at offset 0", "GB18030"),
    ],
)
def test_another_encoding_is_named_with_byte_and_line(content: bytes, line: int, byte: str, encoding: str) -> None:
    assert refusal(content) == [
        f"error: a.txt: line {line}: text must be UTF-8, but byte {byte} is not",
        f"hint: if it is {encoding}: iconv -f {encoding} -t utf-8 OLD > NEW",
    ]


def zipped() -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        archive.writestr("a.txt", "text")
    return memory.getvalue()


@pytest.mark.parametrize(
    ("content", "what", "advice"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG picture", "name a text file"),
        (b"%PDF-1.4 only ASCII", "a PDF document", "pdftotext"),
        (zipped(), "a zip archive", "unzip"),
        (b"PAR1\x15\x04\x15", "a Parquet table", "end in .parquet"),
        (b"\x28\xb5\x2f\xfd\x24\x01", "Zstandard data", "end in .zst"),
        (gzip.compress(b"text"), "gzip data", "end in .gz"),
    ],
    ids=["png", "pdf", "zip", "parquet", "zst", "gz"],
)
def test_a_file_of_another_format_is_recognised(content: bytes, what: str, advice: str, here: Path) -> None:
    error, hint = refusal(content)
    assert error.startswith(f"error: a.txt: this is {what}")
    assert advice in hint
    assert "iconv" not in hint
    (here / "a.txt").write_text("A")
    (here / "b").write_bytes(content)
    assert (read_corpus(".").documents, read_corpus(".").survey.num_skipped) == (("A",), 1)


def test_a_byte_order_mark_is_dropped() -> None:
    assert decode_utf8(b"\xef\xbb\xbfone", "a.txt") == "one"
