from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from support.helpers import RunCommand

from gpt_cli.cli.evaluate import coloured_text
from gpt_cli.text.tokenizer import ByteTokenizer


def test_without_data_it_is_the_closing_loss_of_the_training(copied: Path, run: RunCommand) -> None:
    closing = json.loads(run("train", "--out", copied, "--resume", "--json", "--quiet").out)
    outcome = run("eval", "--json", "--dtype", "float32")
    (found,) = json.loads(outcome.out)["runs"]
    assert found["run"] == str(copied)
    assert found["loss"] == pytest.approx(closing["validation_loss"], abs=2e-3)
    assert found["bits_per_byte"] == pytest.approx(closing["bits_per_byte"], abs=2e-3)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))


def test_several_runs_stand_in_one_table(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The value of the expression is the value of its operands.\n" * 5)
    steps = [smoke_run / "checkpoints" / f"step-{step:08}.safetensors" for step in (10, 20)]
    outcome = run("eval", "--run", steps[0], "--run", steps[1], "--data", tmp_path / "a.txt")
    assert outcome.code == 0
    head, first, second = outcome.out.splitlines()
    assert head.split() == ["run", "step", "tokens", "nats/token", "perplexity", "bits/byte"]
    assert (first.split()[1], second.split()[1]) == ("10", "20")
    assert float(first.split()[3]) > float(second.split()[3])


def test_more_context_helps_or_at_least_changes_the_loss(smoke_run: Path, run: RunCommand) -> None:
    losses = [json.loads(run("eval", "--json", "--stride", n).out)["runs"][0]["loss"] for n in ("32", "8")]
    assert losses[0] != losses[1]


def test_the_price_of_int8_is_seen(smoke_run: Path, run: RunCommand) -> None:
    losses = [json.loads(run("eval", "--json", *more).out)["runs"][0]["loss"] for more in ([], ["--quantize", "int8"])]
    assert 0 < abs(losses[1] - losses[0]) < 0.01


def test_each_token_has_its_surprisal(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The value is 今.")
    options = ["--data", tmp_path / "a.txt", "--per-token"]
    (found,) = json.loads(run("eval", *options, "--json").out)["runs"]
    assert sum(token["nats"] for token in found["per_token"]) / found["num_tokens"] == pytest.approx(found["loss"])
    lines = run("eval", *options).out.splitlines()
    assert lines[0].split() == ["token", "nats"]
    assert lines[1].startswith(json.dumps(found["per_token"][0]["text"]))
    assert len(lines) == 1 + found["num_tokens"] + 2


def test_coloured_text_is_the_text_with_whole_characters() -> None:
    tokenizer = ByteTokenizer()
    nats = [0.5, 1.0, 1.0, 1.0, 0.0, 7.0]  # of b, the three bytes of the character, the end of the line, c
    shown = coloured_text(tokenizer, list("ab今\nc".encode()), nats)
    text, _, legend = shown.partition("\n\n")
    assert text == "ab\033[48;5;94m今\033[0m\n\033[48;5;124mc\033[0m"
    assert re.sub(r"\033\[[0-9;]*m", "", legend) == ("nats per token:  0 to 1   1 to 2   2 to 4   4 to 6   6 and more ")
    cut = coloured_text(tokenizer, [*b"a\x1b", tokenizer.end_of_text, 0xE4], [0.0, 0.0, 9.0])
    assert cut.startswith("a\\x1b<|endoftext|>\033[48;5;124m\N{REPLACEMENT CHARACTER}\033[0m\n\n")


def test_samples_are_compared_with_the_training_text(smoke_run: Path, run: RunCommand) -> None:
    options = ["eval", "--memorised", "--num-samples", "3", "--max-new-tokens", "30"]
    (found,) = json.loads(run(*options, "--json").out)["runs"]
    assert found["memorised"]["num_samples"] == 3
    assert found["memorised"]["longest_length"] == len(found["memorised"]["longest"]) > 0
    assert 0 <= found["memorised"]["copied_share"] < 0.5
    assert f"training text {found['memorised']['longest_length']}: " in run(*options).out


@pytest.mark.parametrize(
    ("flags", "code", "error"),
    [
        (["--stride", "33"], 2, '--stride: 33 is more than the context length of runs/smoke/checkpoints/best.safetensors; use 1 to 32'),
        (["--stride", "0"], 2, '--stride: "0" is not allowed; use a whole number from 1'),
        (["--per-token", "--run", "a", "--run", "b"], 2, "--per-token: is asked for 2 runs; name one with --run"),
        (["--data", "one.txt"], 3, "--data: is one token long; nothing can be predicted"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_told(
    copied: Path, run: RunCommand, here: Path, flags: list[str], code: int, error: str
) -> None:
    (here / "one.txt").write_text("a")
    outcome = run("eval", *flags)
    assert (outcome.code, outcome.err) == (code, f"error: {error}\n")
