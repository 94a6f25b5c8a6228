"""gpt info."""

from __future__ import annotations

import json
from pathlib import Path

from support.helpers import RunCommand

import gpt_cli


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
