from __future__ import annotations

import gzip
import io
import os
import sys
from pathlib import Path

import pytest

from gpt_cli.errors import DataError
from gpt_cli.text.corpus import Corpus, read_corpus


def test_files_directories_globs_and_lists_are_read_in_order(here: Path) -> None:
    (here / "d" / "sub").mkdir(parents=True)
    (here / "d" / "b.txt").write_text("B")
    (here / "d" / "a.txt").write_text("A")
    (here / "d" / "sub" / "c.txt.gz").write_bytes(gzip.compress(b"C"))
    (here / "d" / "x.jsonl").write_text('{"text": "J1"}\n\n{"text": "J2\u2028", "id": 3}\n')
    (here / "d" / ".hidden").write_text("H")
    (here / "d" / "binary").write_bytes(b"\0\1")
    (here / "d" / "broken").symlink_to("nothere")
    os.mkfifo(here / "d" / "pipe")
    corpus = read_corpus("d")
    assert corpus.documents == ("A", "B", "C", "J1", "J2\u2028")
    assert corpus.num_skipped == 3
    assert read_corpus("d/*.txt").documents == ("A", "B")
    assert read_corpus("d/**/*.gz").documents == ("C",)
    assert read_corpus(["d/b.txt", "d/a.txt"]).documents == ("B", "A")


def test_a_run_inside_a_directory_is_no_part_of_its_text(here: Path) -> None:
    (here / "a.txt").write_text("A")
    (here / "runs" / "x" / "checkpoints").mkdir(parents=True)
    for name in ("config.yaml", "metrics.jsonl", "samples.txt"):
        (here / "runs" / "x" / name).write_text("{}")
    assert read_corpus(".").documents == ("A",)


def test_packed_files_that_are_no_text_are_left_out(here: Path) -> None:
    (here / "a.txt").write_text("A")
    (here / "b.bin.gz").write_bytes(gzip.compress(b"\0\xff"))
    corpus = read_corpus(".")
    assert (corpus.documents, corpus.num_skipped) == (("A",), 1)


def test_stdin_is_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("今天".encode())))
    assert read_corpus("-").documents == ("今天",)


def test_a_byte_order_mark_is_dropped_and_line_ends_stay(here: Path) -> None:
    (here / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    assert read_corpus("a.txt").documents == ("one\r\ntwo",)


def test_the_python_documentation_needs_no_network() -> None:
    corpus = read_corpus("python-docs")
    assert len(corpus.documents) > 50
    assert corpus.num_characters > 300_000


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"ab\ncd\xe9f", [
            "error: a.txt: line 2: byte 0xe9 at offset 5 is not UTF-8; text is UTF-8",
            "hint: if it is LATIN1: iconv -f LATIN1 -t utf-8 OLD > NEW"]),
        (b"\xef\xbb\xbf\xff", [
            "error: a.txt: line 1: byte 0xff at offset 3 is not UTF-8; text is UTF-8",
            "hint: if it is GB18030: iconv -f GB18030 -t utf-8 OLD > NEW"]),
        ("今天".encode("utf-16"), [
            "error: a.txt: line 1: byte 0xff at offset 0 is not UTF-8; text is UTF-8",
            "hint: if it is UTF-16: iconv -f UTF-16 -t utf-8 OLD > NEW"]),
        ("今天天气很好".encode("gb18030"), [
            "error: a.txt: line 1: byte 0xbd at offset 0 is not UTF-8; text is UTF-8",
            "hint: if it is GB18030: iconv -f GB18030 -t utf-8 OLD > NEW"]),
    ],
)  # fmt: skip
def test_other_encodings_are_told_with_byte_and_line(here: Path, content: bytes, lines: list[str]) -> None:
    (here / "a.txt").write_bytes(content)
    with pytest.raises(DataError) as raised:
        read_corpus("a.txt")
    assert raised.value.lines() == lines


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", 'x.jsonl:2: not a JSON object; each line is one, such as {"text": "..."}'),
        ('{"txt": "a"}', 'x.jsonl:2: has no field "text" with text in it; each line is like {"text": "..."}'),
        ('{"text": "a\\ud800"}', "x.jsonl:2: half a character in its text at position 1; text is whole characters"),
        ('["text"]', 'x.jsonl:2: has no field "text" with text in it; each line is like {"text": "..."}'),
    ],
)
def test_wrong_lines_of_jsonl_are_told(here: Path, line: str, message: str) -> None:
    (here / "x.jsonl").write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(DataError) as raised:
        read_corpus("x.jsonl")
    assert raised.value.lines() == [f"error: {message}"]


def test_missing_empty_and_special_sources_are_errors(here: Path) -> None:
    (here / "empty.txt").write_text("")
    os.mkfifo(here / "pipe")
    (here / "bad.gz").write_bytes(b"\x1f\x8b no gzip")
    for source, message in (
        ("nothere.txt", "no such file"), ("empty.txt", "holds no text"), ("pipe", "not a regular file"),
        ("bad.gz", "damaged gzip"), ("python-doc", "no such file"), ("n*.txt", "no such file"), ("x" * 300, "the name is too long"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=message):
            read_corpus(source)


def test_the_split_is_by_characters_and_loses_nothing() -> None:
    training, validation = Corpus(("abcd", "efgh", "ij")).split(0.3)
    assert training.documents == ("abcd", "efg")
    assert validation.documents == ("h", "ij")
    training, validation = Corpus(("abcd", "efgh", "ij")).split(0.2)
    assert (training.documents, validation.documents) == (("abcd", "efgh"), ("ij",))
