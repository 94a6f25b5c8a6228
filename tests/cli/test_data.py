"""gpt data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.helpers import RunCommand

from gpt_cli.text import catalogue


def test_data_list_names_every_corpus(run: RunCommand) -> None:
    assert {entry["name"] for entry in json.loads(run("data", "list", "--json").out)["corpora"]} == set(
        catalogue.ENTRIES
    )
    assert len(run("data", "list").out.splitlines()) == len(catalogue.ENTRIES) + 1


def test_data_stats_counts(here: Path, run: RunCommand) -> None:
    Path("a.txt").write_text("今天\nab\n")
    assert json.loads(run("data", "stats", "a.txt", "--json").out) == {
        "documents": 1,
        "skipped_files": 0,
        "repeated_files": 0,
        "characters": 6,
        "bytes": 10,
        "lines": 2,
        "distinct_characters": 5,
    }
    assert "characters           6" in run("data", "stats", "a.txt").out


def test_data_fetch_writes_what_train_reads(here: Path, run: RunCommand) -> None:
    assert run("data", "fetch", "python-docs", "--out", "data").out == "data/python-docs.jsonl\n"
    written, named = (
        json.loads(run("data", "stats", s, "--json").out) for s in ("data/python-docs.jsonl", "python-docs")
    )
    assert written == named


def test_data_fetch_without_network_is_one_error(here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: object, **__: object) -> None:
        raise socket.gaierror("no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    outcome = run("data", "fetch", "lunyu")
    assert outcome.code == 5
    assert outcome.err.startswith("error: lunyu: gpt downloads this text once, from ")


def test_wrong_names_and_empty_values_are_reported_as_typed(here: Path, run: RunCommand) -> None:
    assert run("data", "stats", "python-doc").err.splitlines() == [
        'error: "python-doc": there is no such file',
        "hint: did you mean python-docs? else name a text file, a directory, a glob, - for stdin, "
        "or a name of `gpt data list`",
    ]
    assert run("data", "fetch", "luny").err.splitlines()[-1] == "hint: did you mean lunyu?"
    for words in (["data", "fetch", "lunyu", "--out", ""], ["data", "stats", ""]):
        outcome = run(*words)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith(("error: --out: ", "error: SOURCE: "))


def test_a_download_that_cannot_be_kept_advises_another_folder(
    here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "read_entry", lambda _: ["text"])
    outcome = run("data", "fetch", "lunyu")
    assert outcome.code == 5
    assert outcome.err.splitlines()[0].endswith("is not writable")
    assert outcome.err.splitlines()[1] == "hint: gpt data fetch --out DIR"
    assert run("data", "fetch", "lunyu", "--out", "d").out == "d/lunyu.txt\n"
