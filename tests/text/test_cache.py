import io
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.corpora import documents_of, read_corpus

from gpt_cli.text import cache as module
from gpt_cli.text import load as reading_module
from gpt_cli.text.file_formats import Reading
from gpt_cli.text.load import SourceCorpus


@pytest.fixture(autouse=True)
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of text that were opened; small texts are remembered, in a cache of this test's own."""
    found, read_file = list[str](), reading_module.read_file

    def noted(path: Path, *arguments: Any, **others: Any) -> Any:
        found.append(path.name)
        return read_file(path, *arguments, **others)

    monkeypatch.setattr(reading_module, "read_file", noted)
    monkeypatch.setattr(module, "REMEMBER_FROM", 1)
    monkeypatch.setattr(module, "RACY_SECONDS", -3600)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "d").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt", "c.jsonl"):
        (tmp_path / "d" / name).write_text('{"text": "今天"}\n')
    return found


def manifests() -> list[Path]:
    return sorted(Path("cache/gpt-cli/manifests").glob("*.json"))


def test_a_second_start_opens_nothing_and_knows_the_same(opened: list[str]) -> None:
    Path("d/binary").write_bytes(b"\0")
    Path("d/bad.txt").write_bytes(b"\xff")
    first = read_corpus(["d", "d/a.txt"], Reading(skip_bad=True))
    assert opened == ["a.txt", "b.txt", "bad.txt", "binary", "c.jsonl"]
    opened.clear()
    second = read_corpus(["d", "d/a.txt"], Reading(skip_bad=True))
    assert opened == []
    assert (second.survey, documents_of(second)) == (first.survey, documents_of(first))
    assert second.survey.bad == ("d/bad.txt",)
    opened.clear()
    assert read_corpus(["d", "d/a.txt"], Reading(skip_bad=True), fresh=True).survey == first.survey
    assert len(opened) == 5


def test_a_short_text_that_is_known_is_opened_once_more(opened: list[str]) -> None:
    read_corpus("d")
    opened.clear()
    corpus = read_corpus("d")
    assert [documents_of(part) for part in corpus.split(0)] == [documents_of(corpus), ()]
    assert len(opened) == 3


def rewrite(path: str) -> None:
    """The same bytes in a file of the same age, and another file all the same."""
    before = os.stat(path)
    shutil.copy(path, "other")
    os.utime("other", ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace("other", path)


CHANGES: dict[str, Callable[[], object]] = {
    "grown": lambda: Path("d/b.txt").write_text("grown"),
    "same size": lambda: Path("d/b.txt").write_text(Path("d/b.txt").read_text().replace("今", "明")),
    "added": lambda: Path("d/z.txt").write_text("Z"),
    "removed": lambda: os.unlink("d/b.txt"),
    "renamed": lambda: os.rename("d/b.txt", "d/e.txt"),
    "touched": lambda: os.utime("d/b.txt", ns=(1, 1)),
    "replaced": lambda: rewrite("d/b.txt"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_corpus_is_read_again(opened: list[str], change: str) -> None:
    read_corpus("d")
    opened.clear()
    CHANGES[change]()
    found = read_corpus("d")
    assert len(opened) >= 2
    assert found.survey == read_corpus("d", fresh=True).survey


def test_what_decides_how_files_are_read_has_a_manifest_of_its_own(opened: list[str]) -> None:
    Path("d/c.jsonl").write_text('{"text": "今\\n\\n天", "body": "B"}\n')
    found = [
        read_corpus("d").survey,
        read_corpus("d", Reading(separator="\n\n")).survey,
        read_corpus("d", Reading(text_field="body")).survey,
        read_corpus("d", Reading(skip_bad=True)).survey,
        read_corpus("d/*").survey,
    ]
    assert len(opened) == 12
    assert len({survey.digest for survey in found}) == 3
    assert len(manifests()) == 4, "a glob that finds the same files is the same"


def test_documents_are_read_once_what_converts_them_is_installed(
    opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A survey without them would be that of another text."""
    monkeypatch.setattr(module, "is_installed", lambda _: False)
    read_corpus("d")
    monkeypatch.setattr(module, "is_installed", lambda _: True)
    read_corpus("d")
    read_corpus("d")
    assert len(opened) == 6
    assert len(manifests()) == 2


def test_a_file_younger_than_clocks_tell_is_not_remembered(opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RACY_SECONDS", 3600)
    read_corpus("d")
    assert manifests() == []
    monkeypatch.setattr(module, "RACY_SECONDS", -3600)
    read_corpus("d")
    assert len(manifests()) == 1
    opened.clear()
    read_corpus("d")
    assert opened == []


def test_a_long_reading_makes_no_file_older(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RACY_SECONDS", 2)
    read_all = SourceCorpus._read_all

    def slow(*arguments: Any) -> Any:
        survey = read_all(*arguments)
        later = time.time_ns() + 10**12
        monkeypatch.setattr(time, "time_ns", lambda: later)
        return survey

    monkeypatch.setattr(SourceCorpus, "_read_all", slow)
    read_corpus("d")
    assert manifests() == []


def test_a_damaged_manifest_is_ignored(opened: list[str]) -> None:
    expected = read_corpus("d").survey
    (path,) = manifests()
    content = path.read_bytes()
    other = json.loads(content)
    other["survey"]["num_characters"] += 1
    for damaged in (b"", content[:-9], b"[]", b"{}", b"\xff", json.dumps(other).encode(), b'{"survey": 3}'):
        path.write_bytes(damaged)
        opened.clear()
        assert read_corpus("d").survey == expected
        assert len(opened) == 3, damaged
        assert path.read_bytes() == content


def test_stdin_and_the_catalogue_are_never_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("one", "two"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert documents_of(read_corpus(["d/a.txt", "-"]))[-1] == text
    read_corpus(["d/a.txt", "python-docs"])
    assert manifests() == []


def test_a_text_leaves_a_manifest_where_its_bytes_or_its_files_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBER_FROM", 1000)
    monkeypatch.setattr(module, "OPENING", 300)
    read_corpus("d")
    assert manifests() == []
    Path("d/e.txt").write_text("E")
    read_corpus("d")
    assert len(manifests()) == 1, "opening four files takes as long as reading 1,200 bytes"


def test_without_a_cache_every_start_reads(opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("cache").write_text("a file where the cache should be")
    for _ in range(2):
        opened.clear()
        read_corpus("d")
        assert len(opened) == 3


def test_a_time_in_the_future_is_no_reason_to_read_again(opened: list[str]) -> None:
    os.utime("d/a.txt", (2**32, 2**32))
    read_corpus("d")
    opened.clear()
    assert read_corpus("d").has_survey
    assert opened == []
