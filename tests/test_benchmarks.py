import json
import sys
import time
from pathlib import Path

import pytest
import torch
from support.helpers import CORPUS_TEXT

from benchmarks import saving, shakespeare


def test_the_benchmark_of_saving_gives_its_share(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["saving", "--config", "smoke", "--rounds", "1"])
    saving.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["share"] == pytest.approx(
        (found["checkpoint"] + found["best"]) / (10 * found["step"] + found["checkpoint"] + found["best"])
    )
    assert 1 < found["bytes_per_tensor_byte"] < 1.2
    assert list(here.iterdir()) == []


def test_the_benchmark_of_learning_times_the_whole_command(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.txt").write_text(CORPUS_TEXT)
    options = ["--config", "smoke", "--data", "a.txt", "--seeds", "1", "--steps", "2"]
    monkeypatch.setattr(sys, "argv", ["shakespeare", *options])
    started = time.perf_counter()
    shakespeare.main()
    passed = time.perf_counter() - started
    lines = capsys.readouterr().out.splitlines()
    found = json.loads(lines[-1])
    assert lines[-2] == f"ratio {found['plain_seconds'] / found['seconds']:.1f}"
    assert 0 < found["seconds"] < passed
    monkeypatch.setattr(sys, "argv", ["shakespeare", "--data", "nothing.txt"])
    with pytest.raises(SystemExit, match=r"nothing\.txt"):
        shakespeare.main()


def test_the_plain_trainer_learns() -> None:
    torch.manual_seed(0)
    trainer = shakespeare.PlainTrainer(CORPUS_TEXT)
    losses = [trainer.step() for _ in range(20)]
    assert losses[-1] < losses[0] - 0.5
