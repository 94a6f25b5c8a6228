"""The benchmark of settings at equal time: what it compares, that it goes on where it was stopped, and its table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.helpers import CORPUS_TEXT

from benchmarks import learning
from gpt_cli.config.load import read_config
from gpt_cli.errors import UsageError


@pytest.fixture(autouse=True)
def _text(here: Path) -> None:
    (here / "a.txt").write_text(CORPUS_TEXT)


def test_a_try_sets_what_it_says_over_the_base() -> None:
    base = read_config("smoke")
    found = learning.tries(base, ["model.qk_norm=true", "model.activation=swiglu train.batch_size=2"])
    assert list(found) == ["base", "model.qk_norm=true", "model.activation=swiglu train.batch_size=2"]
    assert [config.model.qk_norm for config in found.values()] == [False, True, False]
    both = found["model.activation=swiglu train.batch_size=2"]
    assert (both.model.activation, both.train.batch_size) == ("swiglu", 2)
    assert both.model.d_model == base.model.d_model


@pytest.mark.parametrize("key", ["train.max_steps", "train.seed"])
def test_a_try_of_what_the_benchmark_decides_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match=f"{key} is decided by the benchmark"):
        learning.tries(read_config("smoke"), [f"model.qk_norm=true {key}=5"])


def test_a_change_is_that_from_the_base_with_the_same_seed() -> None:
    def result(name: str, seed: int, bits: float) -> dict[str, Any]:
        return {"text": "a", "name": name, "seed": seed, "cost": 1.25, "bits_per_byte": bits}

    results = [result("base", 0, 2.0), result("base", 1, 2.5), result("t", 0, 1.0), result("t", 1, 2.0)]
    assert learning.changes(results, "t", "a") == pytest.approx([-0.5, -0.2])
    # half of the difference of two numbers is the standard error of their mean
    assert learning.summary(results).splitlines()[-1].endswith("1.25            1.5000         -35.00% ± 15.00%")
    assert "±" not in learning.summary(result("base", seed, 2.0) for seed in range(2))


def test_a_try_that_costs_more_gets_fewer_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[int, int]] = []

    def trained(config: Any, source: str, steps: int) -> dict[str, Any]:
        if len(seen) == 3:
            raise KeyboardInterrupt
        seen.append((config.train.seed, steps))
        return {"bits_per_byte": 2.0, "steps": steps}

    monkeypatch.setattr(learning, "trained", trained)
    monkeypatch.setattr(learning, "times_reference", lambda *_: 0.5)
    monkeypatch.setattr(learning, "cost_ratio", lambda *_, **__: 1.25)
    flags = ["--data", "a.txt", "--config", "smoke", "--seconds", "3", "--seeds", "2", "--try", "model.qk_norm=true"]
    monkeypatch.setattr(sys, "argv", ["learning", *flags])
    with pytest.raises(KeyboardInterrupt):
        learning.main()
    assert seen == [
        (0, 100),
        (1, 100),
        (0, 80),
    ]  # 3 s are 50 steps of tiny, each of which takes as long as two of these
    assert len(json.loads(Path("learning.json").read_text())) == 3
    seen.clear()
    learning.main()
    assert seen == [(1, 80)]
    assert "+0.00% ± 0.00%" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["learning", "--data", "a.txt", "--try", "model.qk=1"])
    with pytest.raises(SystemExit, match=r"model\.qk"):
        learning.main()


def test_the_base_is_the_choice_for_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(learning, "trained", lambda config, *_: found.append(config) or {"bits_per_byte": 2.0})
    monkeypatch.setattr(sys, "argv", ["learning", "--data", "a.txt", "--set", "model.d_model=32", "--seeds", "1"])
    learning.main()
    (config,) = found
    assert (config.model.d_model, config.train.optimizer, config.tokenizer.kind) == (32, "muon", "char")
