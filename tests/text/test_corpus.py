import contextlib
import gzip
import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as arrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from support.corpora import Texts, documents_of, noting, read_corpus, read_split
from support.texts import KINDS, Twin, lay, packed, refused, unpacked

from gpt_cli.common.host import Host
from gpt_cli.config import DataConfig
from gpt_cli.errors import DataError, EnvironmentFailure
from gpt_cli.text import compressed, file_formats
from gpt_cli.text import corpus as corpus_module
from gpt_cli.text import load as module
from gpt_cli.text.file_formats import SKIP_HINT, Reading
from gpt_cli.text.load import read_data, split_of


def test_files_directories_globs_and_lists_are_read_in_order(here: Path) -> None:
    records = '{"text": "J1"}\n\n{"text": "J2\u2028", "id": 3}\n'
    lay({"d/b.txt": "B", "d/a.txt": "A", "d/sub/c.txt.gz": gzip.compress(b"C"), "d/x.jsonl": records})
    lay({"d/binary": b"\0\1"})
    (here / "d" / "broken").symlink_to("nothere")
    corpus = read_corpus("d")
    assert documents_of(corpus) == ("A", "B", "C", "J1", "J2\u2028")
    assert corpus.survey.num_skipped == 2
    assert documents_of(read_corpus("d/*.txt")) == ("A", "B")
    assert documents_of(read_corpus("d/**/*.gz")) == ("C",)
    assert documents_of(read_corpus(["d/b.txt", "d/a.txt"])) == ("B", "A")


@pytest.mark.parametrize("source", [".", "*", "**", "./-"])
def test_a_file_that_is_named_as_stdin_is_read(source: str, here: Path) -> None:
    (here / "-").write_text("a dash")
    assert documents_of(read_corpus(source)) == ("a dash",)


@pytest.mark.parametrize("name", ["-", "python-docs"])
def test_a_missing_file_with_the_name_of_another_source_is_missing(name: str, here: Path) -> None:
    refused(f"./{name}", f"{name}.*: there is no such file")


def test_line_ends_that_become_tokens_are_noted_with_the_command_that_takes_them_out(here: Path) -> None:
    lay({"d/win 1.txt": b"a\r\nb\r\n", "d/win2.txt": b"a\r\nb\r\n", "d/lf.txt": b"a\nb\rc\n", "mac.txt": b"a\rb\r"})
    lay({"lines.jsonl": '{"text": "a\\r\\nb"}\n', "win.txt.gz": gzip.compress(b"a\r\nb\r\n")})
    windows = "lines end as on Windows, and \\r becomes a part of tokens; tr -d '\\r' < {} > {} removes it"
    assert not list(read_corpus("d/lf.txt").notices())
    command = windows.format("'d/win 1.txt'", "'d/win 1-lf.txt'")
    moved = "then move the old file out of the directory"
    assert list(read_corpus("d").notices()) == [f"in d/win 1.txt, {command}; {moved}"]
    parquet.write_table(arrow.table({"text": ["a\r\nb"]}), here / "lines.parquet")
    what, _, _ = windows.partition("; ")
    for name in ("lines.jsonl", "lines.parquet"):  # the command would change nothing, or damage the file
        assert list(read_corpus(name).notices()) == [f"in {name}, {what}"]
    assert list(read_corpus("win.txt.gz").notices()) == [f"in win.txt.gz, {windows.format('OLD', 'NEW')}"]
    (line,) = read_corpus("mac.txt").notices()
    assert line.startswith("in mac.txt, lines end with \\r alone")


def test_what_latex_writes_beside_a_text_is_left_out_of_a_directory(here: Path) -> None:
    logged = "This is pdfTeX, Version 3.141592653\nOverfull \\hbox"
    lay({"d/a.txt": "a", "d/main.aux": "\\relax", "d/main.log": logged, "d/my.log": "a day"})
    corpus = read_corpus("d")
    assert documents_of(corpus) == ("a", "a day")
    named = "d/main.aux (written by LaTeX), d/main.log (written by LaTeX)"
    assert list(corpus.notices()) == [f"left out 2 files without text: {named}"]


FIELDS = 'this record has no field "text" that contains text'


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", 'this is not JSON; each line is an object such as {"text": "..."}'),
        ('{"id": 1, "txt": "a"}', f'{FIELDS}; fields with text, and their mean length in characters: "txt" (1)'),
        ('{"text": "a\\ud800"}', "the text has half a character at position 1"),
        ('["text"]', FIELDS),
    ],
)
def test_wrong_lines_of_jsonl_are_named(here: Path, line: str, sentence: str) -> None:
    (here / "x.jsonl").write_text('{"text": "fine"}\n' + line + "\n")
    error = refused("x.jsonl")
    assert (error.where, error.sentence) == ("x.jsonl:2", sentence)
    assert error.hint == "‹data.skip_bad=true› leaves such records out"


def test_a_line_that_would_not_fit_in_memory_is_an_error(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_cli.text.record_formats.LINE_CHARACTERS", 30)
    monkeypatch.setattr("gpt_cli.text.compressed.BLOCK", 8)
    (here / "x.jsonl").write_text('{"text": "fits in"}\n{"text": "does not fit in memory"}\n')
    refused("x.jsonl", r"x\.jsonl:2: this line has more than 30 characters")


def test_an_address_and_a_pattern_without_files_are_named_as_such(here: Path) -> None:
    assert refused("https://example.com/a.txt?b&c").lines() == [
        'error: "https://example.com/a.txt?b&c": this is an address, but gpt reads files',
        "hint: download it first: curl -gL -o my.txt 'https://example.com/a.txt?b&c', then name my.txt",
    ]
    error, hint = refused("books/*.md").lines()
    assert error == 'error: "books/*.md": no file matches this pattern'
    assert hint.startswith("hint: name a text file, a directory, a glob")


def test_a_text_is_read_once_whatever_names_and_links_lead_to_it(here: Path) -> None:
    lay({"d/a.txt": "A", "d/c.txt": "C"})
    (here / "d" / "b.txt").symlink_to("a.txt")
    corpus = read_corpus(["d", "d/c.txt", "./d/../d/a.txt", "d/*.txt"])
    assert documents_of(corpus) == ("A", "C")
    assert corpus.survey.num_repeated == 6
    assert list(corpus.notices()) == ["left out 6 repeated sources: each text is read once"]
    assert read_corpus(["python-docs", "python-docs"]).survey.num_repeated == 1
    assert list(read_corpus("d/a.txt").notices()) == []


def test_a_tilde_is_the_home_folder_also_without_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.txt").write_text("A")
    assert documents_of(read_corpus("~/a.txt")) == documents_of(read_corpus("~/*.txt")) == ("A",)


def test_a_separator_splits_documents_and_leaves_out_empty_ones(here: Path) -> None:
    lay({"a.txt": "\n\none\nline\n\n\n\ntwo\n\n \n\n", "b.txt": b"three\r\n\r\nfour"})
    found = documents_of(read_corpus(["a.txt", "b.txt"], Reading(separator="\n\n")))
    assert found == ("one\nline", "two", "three", "four")
    assert documents_of(read_corpus("b.txt", Reading(separator="re"))) == ("th", "e\r\n\r\nfour")
    assert documents_of(read_corpus("b.txt")) == ("three\r\n\r\nfour",)
    config = DataConfig(source=["a.txt", "b.txt"], separator="\n\n", validation_fraction=0.2)
    assert [documents_of(part) for part in read_data(config).split(0.2)] == [
        documents_of(part) for part in read_split(config)
    ]
    assert documents_of(read_split(config)[1]) == ("four",)


documents = st.lists(st.text("aab \n\r今🙂—", min_size=1, max_size=25), min_size=1, max_size=4)
files = st.lists(st.tuples(st.sampled_from(KINDS), documents), min_size=1, max_size=5)
separators = st.sampled_from([None, "\n\n", "\n", "aab", "今🙂", "\r\n"])


@contextlib.contextmanager
def folder_of(files: list[tuple[str, list[str]]]) -> Iterator[Path]:
    """A folder with files of several kinds, in the order of their numbers, in two subfolders and beside them."""
    with tempfile.TemporaryDirectory() as name:
        for number, (kind, texts) in enumerate(files):
            path = Path(name, ["1", "2/a", "3"][3 * number // len(files)], f"{number}.{kind}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(packed(texts, kind))
        yield Path(name)


@given(
    files,
    separators,
    st.integers(1, 64),
    st.floats(0, 1),
    st.sampled_from(["folder", "glob", "list", "stdin"]),
    st.sampled_from([0, 60, 10**6]),
)
def test_any_source_in_blocks_of_any_size_gives_what_whole_strings_give(
    files: list[tuple[str, list[str]]], separator: str | None, block: int, fraction: float, how: str, held: int
) -> None:
    with folder_of(files) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_formats, "BLOCK", block)
        patch.setattr(compressed, "BLOCK", block)
        patch.setattr(compressed, "_ZSTD_INPUT", block)
        patch.setattr(module, "BLOCK", block)
        patch.setattr(corpus_module, "HASHED_AT_ONCE", 3 * block)
        patch.setattr(corpus_module, "CACHE_FROM", held)
        patch.setattr(module, "STDIN_MEMORY", 20)
        sources = {"folder": [str(folder)], "glob": [f"{folder}/**/*"]}.get(how) or sorted(
            map(str, folder.rglob("*.*"))
        )
        twin = Twin([document for kind, texts in files for document in unpacked(texts, kind)])
        if how == "stdin":
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("—stdin—\r\n".encode())))
            sources, twin = ["-", *sources], Twin(["—stdin—\r\n", *twin.documents])
        expected = twin.divided(separator)
        if not expected.documents:
            with pytest.raises(DataError, match="contains no text"):
                read_corpus(sources, Reading(separator=separator))
            return
        corpus = read_corpus(sources, Reading(separator=separator))
        assert list(documents_of(corpus)) == expected.documents
        assert corpus.num_characters == sum(map(len, expected.documents))
        assert corpus.num_bytes == sum(len(document.encode()) for document in expected.documents)
        assert corpus.survey.num_documents == len(expected.documents)
        assert corpus.digest == Texts(expected.documents).digest == expected.digest
        for part, twin_part in zip(corpus.split(fraction), expected.split(fraction), strict=True):
            assert list(documents_of(part)) == twin_part.documents
            assert part.num_characters == sum(map(len, twin_part.documents))


def test_other_parts_of_a_text_have_other_digests() -> None:
    parts = [part for fraction in (0.2, 0.4) for part in Texts(("abcde",)).split(fraction)]
    assert len({part.digest for part in parts}) == 4


def bad_files(folder: str, count: int) -> None:
    lay({f"{folder}/a.txt": "A", f"{folder}/z.jsonl": '{"text": "Z"}\n'})
    lay({f"{folder}/bad-{number:02d}.txt": b"good\n" * 9 + b"\xff" for number in range(count)})


def test_all_bad_files_are_named_at_once(here: Path) -> None:
    bad_files("one", 1)
    error, *hints = refused("one").lines()
    assert error.startswith("error: one/bad-00.txt: line 10: text must be UTF-8, but byte 0xff at offset 45 is not")
    assert any("data.skip_bad" in hint for hint in hints)
    bad_files("many", 25)
    errors = [line for line in refused("many").lines() if line.startswith("error")]
    assert len(errors) == 21
    assert errors[19].startswith("error: many/bad-19.txt")
    assert errors[20] == 'error: "many": 5 more files cannot be read'


@pytest.mark.parametrize("held", [0, 10**6])
def test_bad_files_are_left_out_and_counted_where_the_config_says_so(
    held: int, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "BLOCK", 8)
    monkeypatch.setattr(corpus_module, "HASHED_AT_ONCE", 20)
    monkeypatch.setattr(corpus_module, "CACHE_FROM", held)
    bad_files("d", 3)
    lay({"d/cut.txt.gz": gzip.compress(b"begins as text" * 99)[:-1]})
    lay({"d/line.jsonl": '{"text": "fine"}\n{"txt": "not"}\n'})
    corpus = read_corpus("d", Reading(skip_bad=True))
    assert documents_of(corpus) == ("A", "fine", "Z"), "nothing of a file that turns bad at its end, all good records"
    assert (corpus.survey.num_documents, corpus.num_characters, corpus.num_bytes) == (3, 6, 6)
    assert corpus.digest == Texts(("A", "fine", "Z")).digest
    assert list(corpus.notices()) == [
        "left out 1 bad record: d/line.jsonl:2",
        "left out 4 bad files: d/bad-00.txt, d/bad-01.txt, d/bad-02.txt, ...",
    ]
    assert documents_of(read_data(DataConfig(source="d", skip_bad=True))) == ("A", "fine", "Z")


def test_no_hint_names_the_setting_that_is_set_already(here: Path) -> None:
    lay({"d/a.zip": b"PK cut off"})
    for skip_bad, hint in ((False, SKIP_HINT), (True, None)):
        assert refused("d", "damaged", skip_bad=skip_bad).hint == hint


def test_a_look_at_many_files_shows_that_it_is_at_work(here: Path) -> None:
    (here / "a.txt").write_text("A")
    amounts: dict[str, list[int]] = {}
    read_corpus(".", host=Host(counting=noting(amounts)))
    assert [*amounts.items()] == [("looking for changes", [0, 0]), ("reading", [1, 1])]


def test_a_text_that_changed_since_the_first_pass_is_noticed(here: Path) -> None:
    (here / "a.txt").write_text("A")
    corpus = read_corpus("a.txt")
    corpus.split(0.5)[0].whole.require_unchanged()
    (here / "a.txt").write_text("B")
    for part in (corpus, *corpus.split(0.5)):
        with pytest.raises(DataError, match="the text changed while gpt read it"):
            part.whole.require_unchanged()


@pytest.mark.parametrize(
    ("free", "limit", "sentence"),
    [
        (200_000_000, 2**34, "gpt keeps at most 100 MB of it, half of what is free in the folder TMPDIR"),
        (10**12, 90_000_000, "gpt keeps at most 90 MB of it"),
    ],
)
def test_a_stdin_without_end_fills_neither_memory_nor_disk(
    free: int, limit: int, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless(io.RawIOBase):
        def read1(self, size: int = -1) -> bytes:
            return b"y\n" * (size // 2)

    amounts: dict[str, list[int]] = {}
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Endless()))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    monkeypatch.setattr("gpt_cli.text.load.STDIN_BYTES", limit)
    with pytest.raises(DataError) as raised:
        read_corpus("-", host=Host(counting=noting(amounts)))
    assert str(raised.value) == f"stdin: {sentence}"
    assert 0.99 < sum(amounts["reading stdin"]) / min(free // 2, limit) <= 1


def test_two_corpora_of_a_command_have_the_same_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where two runs want other settings of it; another stdin is another text."""
    for text in ("今天 one", "two"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        corpora = read_corpus("-"), read_corpus("-", Reading(skip_bad=True))
        assert [documents_of(corpus) for corpus in corpora] == [(text,), (text,)]


def test_a_full_disk_under_stdin_is_an_error_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"text")))
    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda max_size: Full())
    with pytest.raises(EnvironmentFailure, match="there is no space left on the filesystem"):
        read_corpus("-")


def test_a_converted_file_of_a_directory_is_moved_out_of_it(here: Path) -> None:
    lay({"d/old.txt": "春眠不觉晓，处处闻啼鸟。".encode("gbk")})
    moved = "then move the old file out of the directory; or ‹data.skip_bad=true› leaves such files out"
    assert (refused("d").hint or "").endswith(f"look at the new file before you use it; {moved}")
    assert (refused("d/old.txt").hint or "").endswith("look at the new file before you use it")


def test_a_file_that_the_user_named_is_never_left_out_as_bad(here: Path) -> None:
    lay({"a.txt": "A", "bad.txt": b"\xff"})
    for missing in ("typo.txt", "bad.txt"):
        refused(["a.txt", missing], missing, skip_bad=True)


def test_a_validation_text_tells_what_it_left_out_and_what_it_shares(here: Path) -> None:
    lay({"t/a.txt": "t/a.txt", "t/b.txt": "t/b.txt", "v/a.txt": "v/a.txt", "v/bad.txt": b"\xff"})
    config = DataConfig(source=["t"], validation_source=["v", "t/b.txt"], skip_bad=True)
    notices = list[str]()
    training, validation = split_of(read_data(config), config, Host(notices.append))
    assert (documents_of(training), documents_of(validation)) == (("t/a.txt", "t/b.txt"), ("v/a.txt", "t/b.txt"))
    assert notices == [
        "data.validation_source: left out 1 bad file: v/bad.txt",
        "data.validation_source: the training text contains 1 file of it, too",
    ]
