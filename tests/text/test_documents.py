import gzip
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.archives import zipped
from support.corpora import documents_of, read_corpus
from support.texts import Twin, cut, joined, lay
from support.texts import pieces as twin_pieces

from gpt_cli.errors import DataError
from gpt_cli.text import documents as module
from gpt_cli.text.documents import (
    TextBlock,
    decode_utf8,
    in_groups,
    in_pieces,
    markup_noted,
    part_of,
    split_at,
    split_at_marks,
    split_document,
)

SEPARATORS = ["\n\n", "\n", "aab", "aa", "\r\n", "\n \n", "今🙂", "a\n\na"]
texts = st.text("aab \n\n\r今🙂", max_size=30)


sizes = st.lists(st.integers(1, 7), min_size=1, max_size=5)


@example(["one\r\n\r\ntwo\n\nthree"], [4, 2, 5], "\n\n")  # two blocks share a separator of Windows
@given(st.lists(texts, max_size=4), sizes, st.sampled_from(SEPARATORS))
def test_a_separator_is_found_wherever_blocks_are_cut(documents: list[str], sizes: list[int], separator: str) -> None:
    assert joined(split_at(separator, cut(documents, sizes))) == Twin(documents).divided(separator).documents


@given(st.lists(texts, max_size=4), sizes, st.integers(0, 50), st.integers(0, 50))
def test_a_part_contains_its_characters_alone(documents: list[str], sizes: list[int], start: int, length: int) -> None:
    found = joined(part_of(cut(documents, sizes), start, start + length))
    before = after = 0
    expected = list[str]()
    for document in documents:
        before, after = after, after + len(document)
        expected.append(document[max(0, start - before) : max(0, start + length - before)])
    assert found == [part for part in expected if part]


@given(st.lists(texts, max_size=4), sizes, st.integers(1, 9), st.integers(1, 20))
def test_pieces_and_groups_are_the_same_however_blocks_are_cut(
    documents: list[str], sizes: list[int], max_piece: int, group: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_PIECE", max_piece)
        patch.setattr(module, "GROUP_CHARACTERS", group)
        found = list(in_pieces(cut(documents, sizes)))
        whole = [piece for document in documents if document for piece in twin_pieces(document, max_piece)]
        assert [piece.text for piece in found] == whole
        assert [piece for document in documents for piece in split_document(document)] == whole
        assert joined(found) == [document for document in documents if document]
        groups = list(in_groups(found))
    assert [piece for each in groups for piece in each] == found
    lengths = [sum(len(piece.text) + 32 for piece in each) for each in groups]
    assert all(length >= group for length in lengths[:-1])
    assert all(length < group + max_piece + 32 for length in lengths)


def refusal(content: bytes) -> list[str]:
    with pytest.raises(DataError) as raised:
        decode_utf8(content, "a.txt")
    return raised.value.lines()


SIMPLIFIED = "今天天气很好，我们去公园散步。\n树上的鸟在唱歌，孩子们在草地上跑。\n一天\n" * 3
TRADITIONAL = "今天天氣很好，我們去公園散步。\n樹上的鳥在唱歌，孩子們在草地上跑。\n" * 3


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("第一章\n　　清晨，他慢慢地走过石板桥。\n", "UTF-16"),
        ("The value of a name.", "UTF-16BE"),
        ("The value of a name.", "UTF-16LE"),
    ],
)
def test_utf_16_is_neither_binary_data_nor_a_text_full_of_nuls(here: Path, text: str, encoding: str) -> None:
    content = text.encode(encoding)
    assert refusal(content) == [
        "error: a.txt: this is UTF-16, but text must be UTF-8",
        f"hint: if it is {encoding}: iconv -f {encoding} -t utf-8 OLD > NEW",
    ]
    (here / "a.txt").write_bytes(content)
    with pytest.raises(DataError, match="this is UTF-16"):  # and not left out as a file without text
        read_corpus(".")
    assert decode_utf8(b"a\0b" * 20, "a.txt") == "a\0b" * 20  # which may be meant


def test_a_text_of_several_encodings_is_not_converted_as_a_whole() -> None:
    assert refusal("Schön UTF\n".encode() + "Schön L1\n".encode("latin-1"))[1] == (
        "hint: some of its lines are UTF-8 and some are not: convert each file before you join files"
    )


@pytest.mark.parametrize(
    ("content", "line", "byte", "encoding"),
    [
        (b"ab\ncd\xe9f", 2, "0xe9 at offset 5", "LATIN1"),
        ("a \u201cyes\u201d \u2013 she said".encode("cp1252"), 1, "0x93 at offset 2", "CP1252"),
        ("Où êtes-vous ? Là-bas, près de la forêt.".encode("latin-1"), 1, "0xf9 at offset 1", "LATIN1"),
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


def test_a_command_for_a_packed_text_says_to_unpack_it_first(here: Path) -> None:
    Path("novel.txt.gz").write_bytes(gzip.compress(SIMPLIFIED.encode("gb18030")))
    with pytest.raises(DataError) as raised:
        read_corpus("novel.txt.gz")
    hint = raised.value.hint or ""
    assert hint.startswith("unpack the archive first; if it is simplified Chinese, in GBK: iconv -f GB18030"), hint
    assert "OLD > NEW" in hint
    assert "novel" not in hint


@pytest.mark.parametrize(
    ("text", "encoding", "first"),
    [(SIMPLIFIED, "gb18030", "GB18030"), (TRADITIONAL, "big5", "BIG5"), ("Tom 說：「好。」 " * 9, "big5", "BIG5")],
)
def test_of_the_encodings_of_chinese_the_likely_one_is_named_first(text: str, encoding: str, first: str) -> None:
    hint = refusal(text.encode(encoding))[1]
    named = re.findall(r"iconv -f (\w+) ", hint)
    assert (sorted(named), named[0]) == (["BIG5", "GB18030"], first)
    assert text.encode(encoding).decode(named[0]) == text
    assert hint.endswith("; look at the new file before you use it")


def test_the_command_that_converts_names_the_file(here: Path) -> None:
    lay({"my novel.txt": b"caf\xe9 au lait", "-dash.txt": b"caf\xe9 au lait"})
    for name, command in (
        ("my novel.txt", "'my novel.txt' > 'my novel-utf8.txt'"),
        ("-dash.txt", "./-dash.txt > -dash-utf8.txt"),
    ):
        with pytest.raises(DataError) as raised:
            decode_utf8(Path(name).read_bytes(), name)
        assert raised.value.hint == f"if it is LATIN1: iconv -f LATIN1 -t utf-8 {command}"


@pytest.mark.parametrize("kind", ["<u2", ">u2", "<u4", "<i8"])
@pytest.mark.parametrize("most", [65, 50_257])
def test_token_ids_of_another_program_are_no_utf16(kind: str, most: int) -> None:
    ids = np.random.default_rng(0).zipf(1.3, 4000) % most  # as frequent as words
    for content in (ids.astype(kind).tobytes(), ids.astype(kind).tobytes()[:40]):
        assert refusal(content) == [
            "error: a.txt: this is an array of numbers, such as token ids, not text",
            "hint: name the text; gpt cuts it into tokens by itself",
        ]


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
        command = "iconv -c -f utf-8 -t utf-8 OLD > NEW"
        assert hint == f"hint: {command} leaves out what is damaged; look at the new file before you use it"


NOISE = np.random.default_rng(0).integers(0, 256, 3000, np.uint8).tobytes()
STARTS = [b"MZ\x90\0\3\0\0\0", b"AT&TFORM\0\0\4\1", b"ID3\4\0\0\0\0", b"\0\0\0 ftypisom"]


@pytest.mark.parametrize("content", [*(start + NOISE for start in STARTS), bytes(999), bytes(range(256)) * 4])
def test_programs_music_films_and_bytes_of_no_encoding_are_binary_data(content: bytes) -> None:
    assert refusal(content) == ["error: a.txt: this is binary data, not text", "hint: name a text file"]


def test_bytes_of_no_encoding_that_may_be_text_are_not_converted() -> None:
    assert refusal(bytes([0, *range(128, 256)]) * 4)[1] == "hint: name a text file"


AS_TABLE = "save it as .csv in the program that wrote it"


@pytest.mark.parametrize(
    ("files", "hint"),
    [
        (
            {"[Content_Types].xml": b"", "_rels/.rels": b"", "word/document.xml": b""},
            "give the file a name that ends in .docx",
        ),
        ({"[Content_Types].xml": b"", "xl/workbook.xml": b""}, AS_TABLE),
        ({"[Content_Types].xml": b"", "ppt/presentation.xml": b""}, "save it as .pdf"),
        ({"mimetype": b"application/epub+zip"}, "give the file a name that ends in .epub"),
        ({"mimetype": b"application/vnd.oasis.opendocument.text"}, "give the file a name that ends in .odt"),
        ({"mimetype": b"application/vnd.oasis.opendocument.spreadsheet"}, AS_TABLE),
        ({"mimetype": b"application/vnd.oasis.opendocument.presentation"}, "save it as .pdf"),
        ({"Index/Document.iwa": b""}, "save it as .pdf"),
        ({"collection.anki2": b"", "media": b""}, "name a text file"),
        ({"b/a.txt": b"text"}, "give the file a name that ends in .zip"),
    ],
)
def test_a_zip_archive_has_the_advice_for_what_it_contains(files: dict[str, bytes], hint: str) -> None:
    assert refusal(zipped(files, zipfile.ZIP_STORED))[1] == f"hint: {hint}"


@pytest.mark.parametrize("name", ["a.zip", "B.ZIP", "a.gz", "stdin"])
def test_no_advice_is_to_give_a_name_that_the_file_has_or_cannot_have(name: str) -> None:
    content = gzip.compress(b"text") if name == "a.gz" else zipped({"a.txt": b"text"})
    with pytest.raises(DataError, match="not text") as raised:
        decode_utf8(content, name)
    assert raised.value.hint == "name a text file"


@pytest.mark.parametrize(
    ("content", "what", "advice"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG picture", "name a text file"),
        (b"\x7fELF\2\1\1\0" + b"\1\0\0\0" * 9, "a program", "name a text file"),
        (b"%PDF-1.4 only ASCII", "a PDF document", "ends in .pdf"),
        (b"{\\rtf1\\ansi Hello}", "an RTF document", "ends in .rtf"),
        (zipped({"a.txt": b"text"}), "a zip archive", "ends in .zip"),
        (b"PAR1\x15\x04\x15", "a Parquet table", "ends in .parquet"),
        (b"\x28\xb5\x2f\xfd\x24\x01", "Zstandard data", "ends in .zst"),
        (gzip.compress(b"text"), "gzip data", "ends in .gz"),
        (b"Rar!\x1a\x07\x01\0", "a RAR archive", "unrar x OLD"),
    ],
    ids=["png", "elf", "pdf", "rtf", "zip", "parquet", "zst", "gz", "rar"],
)
def test_a_file_of_another_format_is_recognised(content: bytes, what: str, advice: str, here: Path) -> None:
    error, hint = refusal(content)
    assert error.startswith(f"error: a.txt: this is {what}")
    assert advice in hint
    assert "iconv" not in hint
    (here / "a.txt").write_text("A")
    (here / "b").write_bytes(content)
    assert (documents_of(read_corpus(".")), read_corpus(".").survey.num_skipped) == (("A",), 1)


MARKS = ["<|endoftext|>", "\n<|endoftext|>\n", "\r\n<|endoftext|>\r\n<|startoftext|>", "<|startoftext|>\n"]


@given(
    st.lists(st.text("ab\n<|>e", min_size=1, max_size=9).filter(lambda text: text.strip() == text), max_size=5),
    st.lists(st.sampled_from(MARKS), min_size=6, max_size=6),
    st.integers(1, 9),
)
def test_marks_of_gpt_2_separate_documents_in_any_blocks(documents: list[str], marks: list[str], size: int) -> None:
    text = marks[-1] + "".join(document + mark for document, mark in zip(documents, marks, strict=False))
    notes = list[str]()
    assert joined(split_at_marks(cut([text], [size]), notes.append)) == documents
    assert set(notes) == {"<|endoftext|> is between documents"}


@given(st.lists(st.text("ab \r\n<|endoftx|>", max_size=20), max_size=4), st.integers(1, 9))
def test_texts_without_marks_stay_as_they_are(documents: list[str], size: int) -> None:
    texts = [text for text in documents if text and "|>" not in text]
    assert joined(split_at_marks(cut(texts, [size]), print)) == texts


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("<p>a</p>\n" * 9, "more than a tenth is tags such as <p>, which become tokens"),
        ("1\n00:00:01,000 --> 00:00:02,000\nhello\n\n" * 9, "time lines of subtitles become tokens"),
        ("00:01.000 --> 00:02.000\nhello\n\n" * 9, "time lines of subtitles become tokens"),
        ("[00:12.50]hello\n" * 9, "time lines of subtitles become tokens"),
        ("Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,hello\n" * 9, "time lines of subtitles become tokens"),
        (".PP\nsome words\n" * 9, "requests of troff become tokens"),
        ('<a href="b.html">c</a>\n' * 9, 'more than a tenth is tags such as <a href="b.html">, which become tokens'),
        ("From: Ann <a@b.c>, see <Saved by Ann>\n" * 9 + "</p>", None),
        ("a < b and b > c\n" * 9, None),
        ("#include <stdio.h>\n#include <math.h>\n" * 9, None),
    ],
)
def test_markup_that_becomes_tokens_is_noted(text: str, note: str | None) -> None:
    notes = list[str]()
    assert [*markup_noted(iter([TextBlock(True, text)]), notes.append)] == [TextBlock(True, text)]
    assert notes == ([] if note is None else [note])
