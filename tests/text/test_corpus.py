from __future__ import annotations

import gzip
import io
import os
import sys
from pathlib import Path

import pytest

from gpt_cli.config import DataConfig
from gpt_cli.errors import DataError, EnvironmentFailure
from gpt_cli.text.corpus import Corpus, read_corpus, read_data, read_split


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
    ("line", "message"),
    [
        ("{", 'x.jsonl:2: this is not JSON; each line is an object such as {"text": "..."}'),
        ('{"txt": "a"}', 'x.jsonl:2: this line has no field "text" that contains text, as {"text": "..."} has'),
        ('{"text": "a\\ud800"}', "x.jsonl:2: the text has half a character at position 1"),
        ('["text"]', 'x.jsonl:2: this line has no field "text" that contains text, as {"text": "..."} has'),
    ],
)
def test_wrong_lines_of_jsonl_are_named(here: Path, line: str, message: str) -> None:
    (here / "x.jsonl").write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(DataError) as raised:
        read_corpus("x.jsonl")
    assert raised.value.lines() == [f"error: {message}"]


def test_missing_empty_and_special_sources_are_errors(here: Path) -> None:
    (here / "empty.txt").write_text("")
    os.mkfifo(here / "pipe")
    (here / "bad.gz").write_bytes(b"\x1f\x8b no gzip")
    for source, message in {
        "nothere.txt": "there is no such file",
        "empty.txt": "contains no text",
        "pipe": "not a regular file",
        "bad.gz": "gzip data is damaged",
        "python-doc": "there is no such file",
        "n*.txt": "there is no such file",
        "x" * 300: "the name is too long",
    }.items():
        with pytest.raises(DataError, match=message):
            read_corpus(source)


def test_the_split_is_by_characters_and_loses_nothing() -> None:
    training, validation = Corpus(("abcd", "efgh", "ij")).split(0.3)
    assert training.documents == ("abcd", "efg")
    assert validation.documents == ("h", "ij")
    training, validation = Corpus(("abcd", "efgh", "ij")).split(0.2)
    assert (training.documents, validation.documents) == (("abcd", "efgh"), ("ij",))


def test_a_text_is_read_once_whatever_names_and_links_lead_to_it(here: Path) -> None:
    (here / "d").mkdir()
    (here / "d" / "a.txt").write_text("A")
    (here / "d" / "b.txt").symlink_to("a.txt")
    (here / "d" / "c.txt").write_text("C")
    corpus = read_corpus(["d", "d/c.txt", "./d/../d/a.txt", "d/*.txt"])
    assert corpus.documents == ("A", "C")
    assert corpus.num_repeated == 6
    assert list(corpus.notices()) == ["left out 6 repeated sources: each text is read once"]
    assert read_corpus(["python-docs", "python-docs"]).num_repeated == 1
    assert list(read_corpus("d/a.txt").notices()) == []


def test_a_directory_that_may_not_be_read_is_an_error_and_not_empty(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "d" / "locked").mkdir(parents=True)
    (here / "d" / "a.txt").write_text("A")
    scan = os.scandir

    def scandir(path: str) -> object:  # root, who may run the tests, may read every directory
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(EnvironmentFailure, match='reading "d/locked": permission is denied'):
        read_corpus("d")


def test_a_tilde_is_the_home_folder_also_where_no_shell_expands_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.txt").write_text("A")
    assert read_corpus("~/a.txt").documents == read_corpus("~/*.txt").documents == ("A",)


def test_a_separator_splits_documents_and_leaves_out_empty_ones(here: Path) -> None:
    (here / "a.txt").write_text("\n\none\nline\n\n\n\ntwo\n\n \n\n")
    (here / "b.txt").write_bytes(b"three\r\n\r\nfour")
    assert read_corpus(["a.txt", "b.txt"], "\n\n").documents == ("one\nline", "two", "three", "four")
    assert read_corpus("b.txt", "re").documents == ("th", "e\r\n\r\nfour")
    assert read_corpus("b.txt").documents == ("three\r\n\r\nfour",)
    config = DataConfig(source=["a.txt", "b.txt"], separator="\n\n", validation_fraction=0.2)
    assert read_data(config).split(0.2) == read_split(config)
    assert read_split(config)[1].documents == ("four",)
