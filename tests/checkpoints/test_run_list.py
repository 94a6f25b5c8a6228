"""What a list says about a run, in each of its states."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.helpers import damage

from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.checkpoints.run_list import find_runs, overview
from gpt_cli.checkpoints.run_paths import SWEEP
from gpt_cli.common.file_signatures import LOCK


def test_a_finished_run_and_its_figures(copied: Path) -> None:
    found = overview(copied)
    outcome = json.loads((copied / "outcome.json").read_text())
    lines = [json.loads(line) for line in (copied / "metrics.jsonl").read_text().splitlines()]
    assert (found.state, found.steps, found.problem) == ("finished", 20, None)
    assert found.best_loss == min(line["validation_loss"] for line in lines if "validation_loss" in line)
    assert found.validation_loss == outcome["validation_loss"]
    assert found.num_parameters == outcome["parameters"]
    assert found.config is not None
    assert found.config.train.max_steps == 20
    assert found.num_bytes == sum(path.stat().st_size for path in copied.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("stopped_by", "state"),
    [("time", "finished"), ("patience", "finished"), ("signal", "stopped"), ("diverged", "diverged")],
)
def test_the_record_of_the_end_says_the_state(copied: Path, stopped_by: str, state: str) -> None:
    RunDirectory(copied).end(stopped_by, 13)
    assert (overview(copied).state, overview(copied).steps) == (state, 13)


def test_a_killed_run_is_stopped_at_its_last_line(copied: Path) -> None:
    (copied / "outcome.json").unlink()
    with (copied / "metrics.jsonl").open("a") as file:
        file.write('{"step": 25, "loss": 1}\n{"step": 30, "lo')
    assert (overview(copied).state, overview(copied).steps) == ("stopped", 25)
    (copied / "metrics.jsonl").unlink()
    assert overview(copied).state == "stopped", "not imported: its text is known"


def test_a_run_that_is_trained_is_seen_without_a_change(copied: Path) -> None:
    with sole_trainer(copied, pytest.fail):
        before = (copied / LOCK).stat()
        assert overview(copied).state == "training"
        assert (copied / LOCK).stat() == before
    assert overview(copied).state == "finished"


def test_a_run_before_its_first_checkpoint_is_empty(copied: Path) -> None:
    shutil.rmtree(copied / "checkpoints")
    (copied / "checkpoints").mkdir()
    for name in ("metrics.jsonl", "outcome.json"):
        (copied / name).unlink()
    found = overview(copied)
    assert (found.state, found.steps, found.best_loss, found.num_parameters) == ("empty", 0, None, None)
    assert found.config is not None


@pytest.mark.parametrize("made", [[], ["a"], ["a", "a/checkpoints"]], ids=["nothing", "a folder", "two folders"])
def test_a_run_that_was_never_begun_is_empty(made: list[str], here: Path) -> None:
    """As where a text is missing, or a kill came before the first file."""
    for name in made:
        Path(name).mkdir()
    found = overview(Path("a"))
    assert (found.state, found.problem, found.num_bytes) == ("empty", None, 0)


HARMS: dict[str, Callable[[Path], object]] = {
    "no config": lambda run: (run / "config.yaml").unlink(),
    "a wrong config": lambda run: (run / "config.yaml").write_text("model: 3\n"),
    "a cut checkpoint": lambda run: os.truncate(run / "checkpoints/step-00000020.safetensors", 1000),
    "another outcome": lambda run: (run / "outcome.json").write_text("{}"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_run_is_reported_with_what_is_wrong(copied: Path, harm: str) -> None:
    HARMS[harm](copied)
    found = overview(copied)
    assert found.state == "damaged"
    assert "runs/smoke" in (found.problem or "")
    assert found.num_bytes > 0


def test_weights_are_not_verified(copied: Path) -> None:
    """Which would take as long as reading every run: gpt info does it."""
    damage(copied / "checkpoints" / "best.safetensors")
    assert overview(copied).state == "finished"


def test_runs_are_found_with_those_of_a_sweep_after_them(copied: Path) -> None:
    root = copied.parent
    for name in ("b", "a"):
        shutil.copytree(copied, root / "sweep" / name)
    (root / "sweep" / SWEEP).write_text("{}")
    (root / "notes").mkdir()
    (root / "file").touch()
    for folder in (root, root / "sweep"):
        (folder / "closed").symlink_to("x" * 300)  # stat fails, as for a link into a closed home
    shutil.copytree(copied, root / "one" / "two" / "three")  # too deep
    assert find_runs(root) == [root / "smoke", root / "sweep" / "a", root / "sweep" / "b"]
    assert find_runs(root / "sweep") == [root / "sweep" / "a", root / "sweep" / "b"]
    assert find_runs(copied) == [copied]


def test_a_directory_whose_training_is_being_prepared_is_a_run_and_that_of_a_sweep_is_not(here: Path) -> None:
    with sole_trainer(here / "new", pytest.fail), sole_trainer(here / "sweep", pytest.fail):
        (here / "sweep" / SWEEP).write_text("{}")
        assert find_runs(here) == [here / "new"]
        found = overview(here / "new")
        assert (found.state, found.config, found.problem) == ("training", None, None)
