import json
import sys
from pathlib import Path

import pytest

from benchmarks import sampling, saving, training


def test_the_benchmark_runs_and_prints_every_form(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["training", "--config", "smoke", "--rounds", "1"])
    training.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["separate", "plain", "trained"]
    assert set(json.loads(lines[-1])) == {"separate", "plain", "trained"}


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


def test_the_benchmark_of_sampling_prints_every_form(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sampling", "--config", "smoke", "--rounds", "1", "--tokens", "3"])
    sampling.main()
    rates = json.loads(capsys.readouterr().out.splitlines()[-1])
    # beside those of transformers, where it is installed
    assert len([form for form in rates if "transformers" not in form]) == 7
    assert min(rates.values()) > 0
