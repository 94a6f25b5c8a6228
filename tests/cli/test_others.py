"""gpt info, config and data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from support.helpers import RunCommand

import gpt_cli
from gpt_cli.text import catalogue


def test_info_counts_a_config_and_its_run_alike(smoke_run: Path, run: RunCommand) -> None:
    config, trained = (json.loads(run("info", path, "--json").out) for path in ("smoke", smoke_run))
    for key in (
        "vocab_size",
        "parameters",
        "parameters_by_part",
        "training_tokens",
        "tokens_per_parameter",
        "cache_bytes_per_token",
    ):
        assert config[key] == trained[key]
    model = gpt_cli.load(smoke_run).model
    assert config["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert trained["verified"] is True
    assert trained["checkpoints"]["best.safetensors"].startswith("intact")
    assert trained["checkpoints"]["step-00000020.safetensors"].endswith("resumable")


def test_info_verifies_every_byte(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    content = bytearray((smoke_run / "checkpoints" / "step-00000020.safetensors").read_bytes())
    content[-3] ^= 4
    path = tmp_path / "c.safetensors"
    path.write_bytes(content)
    outcome = run("info", path)
    assert outcome.code == 4
    assert outcome.err.startswith(f'error: "{path}": the file is damaged: its content does not match its digest')


def test_info_tells_what_each_form_of_attention_caches(run: RunCommand) -> None:
    facts = json.loads(run("info", "smoke", "--json").out)
    assert facts["cache_bytes_by_attention"] == {"multi_head": 512, "grouped_query": 256, "latent": 64}
    assert facts["cache_bytes_per_token"] == 512


def test_info_is_a_table_for_people(smoke_run: Path, run: RunCommand) -> None:
    out = run("info", "smoke").out
    rows = [line.rsplit("  ", 1) for line in out.splitlines()]
    assert ["  feed-forward", "16,704"] in [
        [name.rstrip(), value] for name, value in filter(lambda row: len(row) == 2, rows)
    ]
    # two blocks in float32: keys and values of 2 x 16, of one head of 16, and a latent of 8
    cache = [line.split() for line in out.splitlines()[-5:]]
    assert cache == [
        ["cache", "memory", "per", "token", "512", "bytes"], ["cache", "memory", "by", "attention"],
        ["multi_head", "512", "bytes"], ["grouped_query", "256", "bytes"], ["latent", "64", "bytes"],
    ]  # fmt: skip


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
