"""Training from Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.helpers import CORPUS_TEXT, small_config
from support.light import WithoutTorch

from gpt_cli import load, train
from gpt_cli.checkpoints.lock import NAME
from gpt_cli.errors import EnvironmentFailure, UsageError
from gpt_cli.training.reports import Evaluated, Finished, Prepared, Sampled, Saved, Stepped

SETTINGS = ["tokenizer.kind=byte", "train.sample_every=null"]


@pytest.fixture(autouse=True)
def _corpus(here: Path) -> None:
    (here / "corpus.txt").write_text(CORPUS_TEXT)


def test_a_training_reports_and_its_model_loads() -> None:
    notices: list[str] = []
    reports = list(train("smoke", data="corpus.txt", settings=SETTINGS, notice=notices.append, warn=pytest.fail))
    assert isinstance(reports[0], Prepared)
    assert (reports[0].steps_left, reports[0].vocab_size, reports[0].step) == (20, 257, 0)
    assert [report.step for report in reports if isinstance(report, Stepped)] == list(range(1, 21))
    assert {type(report) for report in reports[1:-1]} == {Stepped, Evaluated, Sampled, Saved}
    assert isinstance(reports[-1], Finished)
    assert reports[-1].summary["stopped_by"] == "steps"
    assert load("runs/smoke").step == reports[-1].best_step == 20
    assert len(notices) == 1  # on the single document


def test_nothing_is_written_before_the_first_report_is_taken() -> None:
    reports = train("smoke", data="corpus.txt", settings=SETTINGS)
    assert not Path("runs").exists()
    next(reports)
    assert [path.name for path in Path("runs/smoke").iterdir()] == [NAME]
    reports.close()
    assert not Path("runs").exists()


def test_a_config_from_python_needs_a_name_for_its_run() -> None:
    config = small_config("train.max_steps=2", "data.source=corpus.txt")
    with pytest.raises(UsageError, match="so name the run directory with out"):
        next(train(config))
    *_, finished = train(config, out="runs/mine", settings=["train.max_steps=1"])
    assert isinstance(finished, Finished)
    assert finished.summary["steps"] == 1
    *_, finished = train(out="runs/mine", resume=True, settings=["train.max_steps=3"])
    assert isinstance(finished, Finished)
    assert finished.summary["steps"] == 3


def test_what_is_interrupted_continues_from_its_last_checkpoint() -> None:
    def interrupt_at_step_12() -> None:
        for report in train("smoke", data="corpus.txt", settings=SETTINGS):
            if isinstance(report, Stepped) and report.step == 12:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt_at_step_12()
    assert not list(Path("runs").rglob(NAME))
    reports = list(train("smoke", data="corpus.txt", settings=SETTINGS, resume=True))
    assert isinstance(reports[0], Prepared)
    assert reports[0].step == 10
    assert isinstance(reports[-1], Finished)


def test_a_run_has_one_trainer() -> None:
    reports = train("smoke", data="corpus.txt", settings=SETTINGS)
    next(reports)
    with pytest.raises(EnvironmentFailure, match="a run has one trainer"):
        next(train("smoke", data="corpus.txt", settings=SETTINGS))
    reports.close()


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = (
        "import sys, gpt_cli\ngpt_cli.train\nsys.exit(bool({'torch', 'numpy', 'pydantic', 'yaml'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_a_mistake_in_a_config_is_found_before_torch_is_loaded(without_torch: WithoutTorch) -> None:
    assert without_torch("train", "--config", "smoke", "--set", "train.max_stepz=3").returncode == 2
