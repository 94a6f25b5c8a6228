import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.helpers import RunCommand

from gpt_cli.config import Config
from gpt_cli.config.load import read_config
from gpt_cli.sampling.fast.c_library import library
from gpt_cli.tools.bench.baselines import needed_bytes
from gpt_cli.tools.bench.device_check import NATS, Figures

QUICK = ["--config", "smoke", "--rounds", "1", "--tokens", "3"]


@pytest.fixture(autouse=True)
def _small_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_cli.tools.bench.bench._SIZE", 64)
    monkeypatch.setattr("gpt_cli.tools.bench.bench._READ", 1000)
    monkeypatch.setitem(sys.modules, "transformers", None)  # whose import takes seconds


def test_the_bench_prints_the_roof_and_the_forms_and_tells_what_it_does(
    here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_cli.cli.progress.LINE_SECONDS", 0.0)
    outcome = run("bench", *QUICK, exits=0)
    lines = outcome.out.splitlines()
    assert "GFLOP/s, reading" in lines[1]
    assert lines[3] == "training smoke, 256 tokens a step; the roof is products"
    assert [line.split("  ")[0] for line in lines[4:8]] == ["implementation", "plain", "heads", "gpt train"]
    assert "sampling smoke, 3 tokens after 8; the roof is reading the weights" in lines
    told = [line.split(":")[0] for line in outcome.err.splitlines() if not line.startswith("the roof: ")]
    assert [line for line in told if line.startswith("measuring ")] == [
        f"measuring {what}" for what in ("the roof", "training", "sampling")
    ]
    assert {"building models to train", "building models to sample from"} <= {*told}
    shown = [line.split(",")[0] for line in outcome.err.splitlines() if line.startswith("the roof: ")]
    total = 2 * (2 * 4 + 2 + bool(library()))  # rounds; products by dtype; ways to read
    assert shown[-total:] == [f"the roof: {n} of {total} runs" for n in range(1, total + 1)]
    assert list(here.iterdir()) == []


def test_its_json_is_alone_on_stdout_and_quiet_says_nothing(here: Path, run: RunCommand) -> None:
    outcome = run("bench", *QUICK, "--json", "--quiet", "--set", "model.dropout=0", exits=0)
    assert outcome.err == ""
    found = json.loads(outcome.out)
    assert (found["config"], found["device"], found["rounds"]) == ("smoke", "cpu", 1)
    assert found["roof"]["flops"]["float32"] > 0
    assert found["training"][0]["ratio"] == found["sampling"][0]["ratio"] == 1
    for timing in found["training"]:
        assert timing["tokens_per_second"] * timing["seconds"] > 255.9


def test_a_batch_that_memory_cannot_hold_is_refused_with_one_that_fits(run: RunCommand) -> None:
    refused = run("bench", "--config", "small", "--set", "train.batch_size=65536", exits=5)
    assert refused.err.startswith("error: bench: 65,536 sequences of 128 tokens take about ")
    assert " of memory, but only " in refused.err
    assert "hint: --set train.batch_size=" in refused.err


def test_estimates_grow_with_what_is_measured() -> None:
    def asked(*more: str) -> Config:
        return read_config("smoke", ["train.batch_size=64", *more])

    for more in ("model.num_blocks=4", "model.d_model=64", "tokenizer.vocab_size=4096", "train.batch_size=128"):
        assert max(needed_bytes(asked(more), 10)) > max(needed_bytes(asked(), 10))
    assert needed_bytes(asked(), 50)[1] > needed_bytes(asked(), 10)[1]
    windows = asked("model.attention_window=2")  # of which twice as many tokens are kept
    assert needed_bytes(windows, 50) == needed_bytes(windows, 10)


class TestOfADevice:
    """`gpt bench --check-device`, with a check that passes and one that does not."""

    @pytest.fixture(autouse=True)
    def _two_checks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def figures(number: float) -> Callable[[], Figures]:
            return lambda: {"loss": np.array([number])}

        pairs = {"a copy": (figures(1), figures(1)), "a fault": (figures(1), figures(1.5))}
        monkeypatch.setattr("gpt_cli.tools.bench.device_check.checks", lambda cpu, other: [("losses", NATS, pairs)])

    def test_a_difference_is_shown_and_ends_with_the_code_of_the_machine(
        self, here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gpt_cli.cli.progress.LINE_SECONDS", 0.0)
        outcome = run("bench", "--check-device", "cpu", exits=5)
        lines = [line.split() for line in outcome.out.splitlines()]
        assert lines[6] == ["losses:", "at", "most", "1e-05", "nats"]
        assert lines[8:10] == [["a", "copy", "0", "equal"], ["a", "fault", "0.5", "differs"]]
        assert outcome.out.splitlines()[-1] == "cpu: 2 checks: 1 equal, 1 differs"
        *progress, error, hint = outcome.err.splitlines()
        assert any(line.startswith("checking cpu: 2 of 2 checks") for line in progress)
        assert error == "error: --check-device: cpu gives numbers beyond a bound in 1 check"
        assert hint.startswith("hint: paste")
        (group,) = json.loads(run("bench", "--check-device", "cpu", "--json").out)["groups"]
        verdicts = [(row["name"], row["verdict"]) for row in group["checks"]]
        assert verdicts == [("a copy", "equal"), ("a fault", "differs")]
        assert list(here.iterdir()) == []

    def test_it_is_told_apart_from_timing_and_names_its_own_flag(self, run: RunCommand) -> None:
        run("bench", "--check-device", "cpu", "--rounds", "3", exits=2)
        outcome = run("bench", "--check-device", "xpu", exits=5)
        assert outcome.err.startswith("error: --check-device: xpu is not available")
        assert outcome.err.endswith("hint: --check-device cuda, mps or xpu, on a machine that has one\n")
