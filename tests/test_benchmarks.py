import json
import sys

import pytest

from benchmarks import training


def test_the_benchmark_runs_and_prints_every_form(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["training", "--config", "smoke", "--rounds", "1"])
    training.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["separate", "plain", "trained"]
    assert set(json.loads(lines[-1])) == {"separate", "plain", "trained"}
