from __future__ import annotations

import gzip
import io
import re
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


SIMPLIFIED = "今天天气很好，我们去公园散步。\n树上的鸟在唱歌，孩子们在草地上跑。\n一天\n" * 3
TRADITIONAL = "今天天氣很好，我們去公園散步。\n樹上的鳥在唱歌，孩子們在草地上跑。\n" * 3


@pytest.mark.parametrize(
    ("content", "line", "byte", "encoding"),
    [
        (b"ab\ncd\xe9f", 2, "0xe9 at offset 5", "LATIN1"),
        ("Où êtes-vous ? Là-bas, près de la forêt.".encode("latin-1"), 1, "0xf9 at offset 1", "LATIN1"),
        (SIMPLIFIED.encode("utf-16"), 1, "0xff at offset 0", "UTF-16"),
        (SIMPLIFIED.encode("utf-16-be"), 1, "0xca at offset 1", "UTF-16BE"),
        (SIMPLIFIED.encode("utf-16-le"), 1, "0xca at offset 0", "UTF-16LE"),
    ],
)
def test_another_encoding_is_named_with_byte_and_line(content: bytes, line: int, byte: str, encoding: str) -> None:
    assert refusal(content) == [
        f"error: a.txt: line {line}: text must be UTF-8, but byte {byte} is not",
        f"hint: if it is {encoding}: iconv -f {encoding} -t utf-8 OLD > NEW",
    ]
    assert content.decode(encoding).isprintable() or "\n" in content.decode(encoding)


@pytest.mark.parametrize(
    ("text", "encoding", "first"),
    [(SIMPLIFIED, "gb18030", "GB18030"), (TRADITIONAL, "big5", "BIG5"), ("Tom 說：「好。」 " * 9, "big5", "BIG5")],
)
def test_of_the_encodings_of_chinese_the_likely_one_is_named_first(text: str, encoding: str, first: str) -> None:
    hint = refusal(text.encode(encoding))[1]
    named = re.findall(r"iconv -f (\w+) ", hint)
    assert (sorted(named), named[0]) == (["BIG5", "GB18030"], first)
    assert text.encode(encoding).decode(named[0]) == text
    assert hint.endswith("; look at NEW before you use it")


def test_utf16_of_english_is_no_text_full_of_nuls() -> None:
    for name in ("UTF-16BE", "UTF-16LE"):
        assert refusal("The value of a name.".encode(name)) == [
            "error: a.txt: this is UTF-16, but text must be UTF-8",
            f"hint: if it is {name}: iconv -f {name} -t utf-8 OLD > NEW",
        ]
    assert decode_utf8(b"a\0b" * 20, "a.txt") == "a\0b" * 20  # which may be meant


def test_utf8_that_was_damaged_is_never_converted_from_another_encoding() -> None:
    whole = SIMPLIFIED.encode()
    park = whole.index("园".encode())
    for content, at in (
        (whole[:-3], len(whole) - 4),  # the full stop is cut
        (whole[:park] + b"\xff" + whole[park + 1 :], park),
        (b"\xef\xbb\xbf\xff", 3),
        (b"plain ASCII\n" * 6000 + whole[:-3], 72_000 + len(whole) - 4),
    ):
        error, hint = refusal(content)
        assert f"this is UTF-8 that is damaged or cut off at byte 0x{content[at]:02x}, offset {at:,}" in error
        assert hint == "hint: iconv -c -f utf-8 -t utf-8 OLD > NEW leaves out what is damaged"


def test_bytes_of_no_encoding_are_not_converted() -> None:
    assert refusal(bytes(range(256)) * 4)[1] == "hint: name a text file"


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
