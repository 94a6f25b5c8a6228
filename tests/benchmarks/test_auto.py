"""The benchmark of the choice: what it compares, that it goes on where it was stopped, and its table."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from support.helpers import CORPUS_TEXT

from benchmarks import auto
from gpt_cli.config.load import validate
from gpt_cli.text.load import read_corpus


@pytest.fixture(autouse=True)
def _text(here: Path) -> None:
    (here / "a.txt").write_text(CORPUS_TEXT)


def test_the_candidates_are_the_same_in_every_part() -> None:
    corpus = read_corpus("a.txt")
    found, again = (auto.candidates(corpus, 60.0, 0.06, 2) for _ in range(2))
    assert found == again
    assert list(found) == ["choice", "tiny", "nanogpt", "random 1", "random 2"]
    nano = found["nanogpt"]
    assert (nano.model.d_model, nano.model.context_length, nano.train.batch_size) == (128, 64, 12)


def test_random_settings_are_valid() -> None:
    draw = random.Random(0)
    for _ in range(200):
        validate(auto.random_settings(draw), "random")


def test_it_goes_on_where_it_was_stopped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []

    def trained(config: Any, source: str, steps: int) -> dict[str, Any]:
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(steps)
        return {"bits_per_byte": 2.0 + len(seen), "steps": steps, "last_above_best": 0.0}

    monkeypatch.setattr(auto, "trained", trained)
    monkeypatch.setattr(auto, "times_reference", lambda *_: 0.5)
    monkeypatch.setattr(sys, "argv", ["auto", "--data", "a.txt", "--seconds", "3", "--random", "1"])
    with pytest.raises(KeyboardInterrupt):
        auto.main()
    assert seen[1] == 100  # 3 s are 50 steps of tiny, each of which takes as long as two of these
    kept = json.loads(Path("auto.json").read_text())
    assert [result["name"] for result in kept.values()] == ["choice", "tiny"]
    seen.clear()
    monkeypatch.setattr(auto, "trained", lambda *_: seen.append(0) or {"bits_per_byte": 1.5, "steps": 1})
    auto.main()
    assert len(seen) == 2  # nanoGPT's and one that is random
    assert capsys.readouterr().out.splitlines()[-1] == "| a | 3 | 3.000 | 1.500 of 1 | 4.000 | 1.500 | 0.0% |"


def test_only_promising_random_settings_train_for_the_whole_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[int, int]] = []

    def trained(config: Any, source: str, steps: int) -> dict[str, Any]:
        seen.append((config.model.d_model, steps))
        return {"bits_per_byte": 8.0 - config.model.d_model / 1000, "steps": steps}  # a wider model is better

    monkeypatch.setattr(auto, "trained", trained)
    monkeypatch.setattr(auto, "times_reference", lambda *_: 0.1)
    command = ["auto", "--data", "a.txt", "--seconds", "60", "--only", "random 1", "--only", "random 2"]
    monkeypatch.setattr(sys, "argv", [*command, "--random", "2", "--promising", "1"])
    auto.main()
    settings = auto.candidates(read_corpus("a.txt"), 60.0, 0.06, 2)
    narrow, wide = sorted(settings[f"random {n}"].model.d_model for n in (1, 2))
    assert narrow < wide
    assert sorted(seen[:2]) == [(narrow, 1667), (wide, 1667)]  # 10 s of 6 ms each
    assert seen[2:] == [(wide, 10000)]
    row = f"| a | 60 | not run | {8 - wide / 1000:.3f} of 2 (1) | not run | not run |  |"
    assert capsys.readouterr().out.splitlines()[-1] == row
    monkeypatch.setattr(sys, "argv", [*command, "--random", "2"])
    auto.main()
    assert seen[3:] == [(narrow, 10000)]
    assert "of 2 |" in capsys.readouterr().out


def test_a_text_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["auto", "--data", "missing.txt"])
    with pytest.raises(SystemExit, match="there is no such file"):
        auto.main()


def test_a_real_part_trains_so_many_steps() -> None:
    config = validate({"model": {"d_model": 16, "num_heads": 2, "num_blocks": 1}, "tokenizer": {"kind": "char"}}, "x")
    found = auto.trained(config.changed(model={"context_length": 16}), "a.txt", 4)
    assert found["steps"] == 4
    assert 0 < found["bits_per_byte"] < 10
    assert "no such file" in auto.trained(config, "missing.txt", 1)["error"]
    assert 0 < auto.times_reference(config, 50, rounds=2) < 1
