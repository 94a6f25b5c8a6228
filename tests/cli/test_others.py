"""gpt config and data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from support.helpers import RunCommand

from gpt_cli.text import catalogue


def test_config_check_show_and_schema(here: Path, run: RunCommand) -> None:
    Path("mine.yaml").write_text("model:\n  d_model: 64\ntokenizer:\n  kind: char\n  vocab_size: 300\n")
    checked = run("config", "check", "mine.yaml")
    assert (checked.code, checked.out) == (0, "mine.yaml: valid\n")
    assert checked.err == "tokenizer.vocab_size is not used by tokenizer.kind char\n"
    shown = yaml.safe_load(run("config", "show", "mine.yaml", "--set", "train.seed=0").out)
    assert (shown["model"]["d_model"], shown["train"]["seed"], shown["model"]["num_blocks"]) == (64, 0, 12)
    assert json.loads(run("config", "show", "mine.yaml", "--json").out)["model"]["d_model"] == 64
    schema = json.loads(run("config", "schema").out)
    assert schema["$defs"]["ModelConfig"]["properties"]["norm"]["enum"] == ["layernorm", "rmsnorm"]


def test_data_list_names_every_corpus(run: RunCommand) -> None:
    assert {entry["name"] for entry in json.loads(run("data", "list", "--json").out)["corpora"]} == set(
        catalogue.ENTRIES
    )
    assert len(run("data", "list").out.splitlines()) == len(catalogue.ENTRIES) + 1


def test_data_stats_counts(here: Path, run: RunCommand) -> None:
    Path("a.txt").write_text("今天\nab\n")
    assert json.loads(run("data", "stats", "a.txt", "--json").out) == {
        "documents": 1, "skipped_files": 0, "characters": 6, "bytes": 10, "lines": 2, "distinct_characters": 5,
    }  # fmt: skip
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
    assert outcome.err.startswith("error: lunyu: no answer from the network")
