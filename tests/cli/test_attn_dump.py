from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import RunCommand

import gpt_cli


def test_the_file_holds_the_weights_of_the_trained_model(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    outcome = run(
        "attn-dump",
        "--prompt",
        "The value of",
        "--out",
        tmp_path / "a.npz",
        "--layers",
        "1",
        "--heads",
        "0-1",
    )
    assert outcome.code == 0
    assert outcome.out == ""
    loaded = gpt_cli.load(smoke_run)
    ids = loaded.tokenizer.encode("The value of")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        expected = loaded.model.attention_weights(torch.tensor([ids]), layers=[1])[:, 0]
        np.testing.assert_array_equal(arrays["weights"], expected.numpy())
        assert arrays["token_ids"].tolist() == ids
        np.testing.assert_allclose(arrays["weights"].sum(-1), 1, atol=1e-6)
        assert (np.triu(arrays["weights"], 1) == 0).all()


@pytest.mark.parametrize("ending", ["npz", "safetensors", "json", "csv", "png"])
def test_every_format_is_written(smoke_run: Path, run: RunCommand, tmp_path: Path, ending: str) -> None:
    outcome = run("attn-dump", "--prompt", "今天 is fine", "--out", tmp_path / f"a.{ending}", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["layers"] == [0, 1]
    assert (tmp_path / f"a.{ending}").stat().st_size > 100


def test_stages_and_half_precision_are_chosen_by_flags(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    run(
        "attn-dump",
        "--prompt",
        "The",
        "--out",
        path,
        "--stage",
        "scores",
        "--stage",
        "values",
        "--file-dtype",
        "float16",
    )
    with np.load(path) as arrays:
        assert {"weights", "scores", "values"} <= set(arrays)
        assert arrays["values"].dtype == np.float16
        assert arrays["values"].shape[:2] == (2, 2)


def test_without_a_file_it_draws_in_plain_shades(smoke_run: Path, run: RunCommand) -> None:
    outcome = run("attn-dump", "--prompt", "The value of", "--layers", "0", "--heads", "1")
    lines = outcome.out.splitlines()
    assert lines[0] == "layer 0 head 1"
    assert lines[1].endswith("The ██")
    assert "\x1b" not in outcome.out


def test_a_reader_that_closes_stdout_ends_it_silently(smoke_run: Path) -> None:
    command = f"{sys.executable} -m gpt_cli attn-dump --prompt 'The value of' 2>err.txt; echo $? >code.txt"
    subprocess.run(["sh", "-c", f"({command}) | true"], check=True)
    assert (Path("code.txt").read_text(), Path("err.txt").read_text()) == ("141\n", "")


def test_a_full_disk_below_stderr_is_no_error(smoke_run: Path) -> None:
    command = [sys.executable, "-m", "gpt_cli", "config", "show", "nosuch"]
    with open("/dev/full", "w") as full:
        assert subprocess.run(command, stderr=full).returncode == 2


def test_a_long_prompt_is_refused_with_both_lengths_unless_truncated(smoke_run: Path, run: RunCommand) -> None:
    outcome = run("attn-dump", "--prompt", "a b c d " * 20)
    assert outcome.code == 3
    assert outcome.err.splitlines()[0].startswith("error: prompt: has ")
    assert outcome.err.splitlines()[0].endswith("tokens; this model sees 32")
    assert outcome.err.splitlines()[1] == "hint: --truncate keeps the last ones"
    shortened = run("attn-dump", "--prompt", "a b c d " * 20, "--truncate", "--json")
    assert len(json.loads(shortened.out.splitlines()[-1])["tokens"]) == 32
