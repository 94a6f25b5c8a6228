import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.helpers import RunCommand, damage

import gpt_cli
from gpt_cli.checkpoints import select
from gpt_cli.checkpoints.load import load
from gpt_cli.checkpoints.select import find_checkpoints, find_header
from gpt_cli.checkpoints.verify import read_verified
from gpt_cli.errors import CheckpointError, UsageError


def hint_about(path: str | Path, sentence: str) -> str | None:
    """Return the hint of the error with which no checkpoint is found."""
    with pytest.raises(CheckpointError, match=sentence) as raised:
        find_checkpoints(path)[0]
    return raised.value.hint


def test_the_best_the_last_and_a_step_are_found(smoke_run: Path) -> None:
    folder = smoke_run / "checkpoints"
    assert find_checkpoints(None)[0] == find_checkpoints(smoke_run)[0] == folder / "best.safetensors"
    assert find_checkpoints(smoke_run, "last")[0] == folder / "step-00000020.safetensors"
    assert find_checkpoints(smoke_run, "10")[0] == folder / "step-00000010.safetensors"
    assert find_checkpoints(folder / "step-00000010.safetensors")[0] == folder / "step-00000010.safetensors"
    assert gpt_cli.load(folder / "step-00000010.safetensors").step == 10


def test_what_is_not_there_is_told_with_what_is(smoke_run: Path) -> None:
    with pytest.raises(CheckpointError, match=r"this run has no checkpoint of step 5, only of 10, 20$"):
        find_checkpoints(smoke_run, "5")[0]
    with pytest.raises(UsageError, match=r'"first" is not allowed; use best, last or the number of a step'):
        find_checkpoints(smoke_run, "first")[0]
    with pytest.raises(UsageError, match="is a file, and only runs have checkpoints"):
        find_checkpoints(smoke_run / "checkpoints" / "step-00000010.safetensors", "20")[0]
    assert hint_about("runs/other", "no such run") == "runs here: runs/smoke"


def test_a_run_that_is_removed_meanwhile_hides_no_other(smoke_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "find_runs", lambda _: [Path("runs/removed"), smoke_run])
    assert select.run_hint() == f"runs here: {smoke_run}"


def test_a_name_that_is_nearly_right_is_told_the_right_one(copied: Path, here: Path) -> None:
    shutil.copytree(copied, here / "runs/rates/000-learning_rate-1e-3")
    shutil.copytree(copied, here / "runs/古文")
    for wrong, right in {
        "smok": "runs/smoke",
        "古问": "'runs/古文'",
        "runs/smoek": "runs/smoke",
        "elsewhere/smoke": "runs/smoke",
        "rates/000-learning_rate-1e3": "runs/rates/000-learning_rate-1e-3",
        "000-learning_rate-1e-4": "runs/rates/000-learning_rate-1e-3",
    }.items():
        assert hint_about(wrong, "no such run") == f"did you mean {right}?"


def test_runs_with_a_checkpoint_are_listed_the_newest_first(copied: Path, here: Path) -> None:
    for number in range(12):
        shutil.copytree(copied, here / f"runs/{number:02}")
        os.utime(here / f"runs/{number:02}/checkpoints", (number, number))
    (here / "runs/new/checkpoints").mkdir(parents=True)
    shutil.copy(copied / "config.yaml", here / "runs/new")
    newest = ", ".join(f"runs/{number:02}" for number in range(11, 2, -1))
    for path, sentence in {"runs/new": "this run has no checkpoint yet", "xyz": "there is no such run"}.items():
        assert hint_about(path, sentence) == f"runs here: runs/smoke, {newest} and 3 more"


def test_a_directory_of_runs_is_told_from_a_run(copied: Path, here: Path) -> None:
    shutil.copytree(copied, here / "runs/rates/000-a")
    (here / "runs/rates/001-b/checkpoints").mkdir(parents=True)
    shutil.copy(copied / "config.yaml", here / "runs/rates/001-b")
    (here / "mine").mkdir()
    sentence = "this is not a run but a directory of"
    assert hint_about("rates", f"{sentence} 2 runs$") == "name one of them: runs/rates/000-a"
    shutil.rmtree(here / "runs/rates/000-a")
    assert hint_about("rates", f"{sentence} 1 run$") == "gpt runs runs/rates"
    hint_about("mine", r"this is not a run$")


def test_without_a_best_one_the_last_is_taken(copied: Path) -> None:
    (copied / "checkpoints" / "best.safetensors").unlink()
    assert find_checkpoints(copied)[0].name == "step-00000020.safetensors"


def test_an_empty_folder_has_no_runs(here: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no trained model in this folder"):
        find_checkpoints(None)[0]


def test_a_loaded_model_and_its_tokenizer_are_shown_in_a_line(smoke_run: Path) -> None:
    loaded = gpt_cli.load("runs/smoke")
    assert repr(loaded.tokenizer) == "BytePairTokenizer(vocab_size=512)"
    num_parameters = f"{gpt_cli.info('runs/smoke').as_dict()['parameters']:,}"
    said = f'Trained("runs/smoke/checkpoints/best.safetensors", step {loaded.step}, {num_parameters} parameters)'
    assert repr(loaded) == said


def test_a_damaged_best_is_said_and_the_last_one_taken(copied: Path, run: RunCommand) -> None:
    damage(copied / "checkpoints" / "best.safetensors")
    said: list[str] = []
    assert load(copied, warn=said.append).path.name == "step-00000020.safetensors"
    assert said == [
        '"runs/smoke/checkpoints/best.safetensors": the file is damaged: its content does not match its digest; '
        "trying another checkpoint of the run"
    ]
    outcome = run("sample", "--prompt", "The ", "--greedy", "--max-new-tokens", "3", "--quiet")
    assert (outcome.code, outcome.err) == (0, f"warning: {said[0]}\n")
    run("sample", "--prompt", "The ", "--checkpoint", "best", "--quiet", exits=4)
    with pytest.raises(CheckpointError, match="damaged"):
        gpt_cli.load(copied)


def test_a_file_that_a_trainer_removes_is_looked_for_anew(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prune_first(path: Path, **options: bool) -> Any:
        (copied / "checkpoints" / "step-00000020.safetensors").unlink(missing_ok=True)
        return read_verified(path, **options)

    monkeypatch.setattr("gpt_cli.checkpoints.checkpoint.read_verified", prune_first)
    assert load(copied, "last").path.name == "step-00000010.safetensors"


def test_the_header_says_what_the_model_has(smoke_run: Path) -> None:
    header = find_header(None)
    assert (header.step, header.config.model.num_blocks) == (load(smoke_run).step, 2)
    assert header.shapes["blocks.0.attention.heads.0.Wq.weight"] == (16, 32)


def test_the_header_of_a_run_whose_best_is_damaged_is_that_of_another_checkpoint(copied: Path) -> None:
    (copied / "checkpoints" / "best.safetensors").write_bytes(b"")
    assert find_header(copied).step == 20
    with pytest.raises(CheckpointError, match="this is not a checkpoint of gpt"):
        find_header(copied, "best")


def test_what_was_checked_is_what_is_loaded(copied: Path) -> None:
    found = find_header(copied, "last")
    shutil.copy(found.path, found.path.with_name("step-00000030.safetensors"))  # a trainer goes on
    assert load(copied, "last", expected=found).path == found.path
    other = replace(found, metadata={**found.metadata, "tokenizer": "{}"})
    with pytest.raises(CheckpointError, match="another training replaced this model while gpt read it"):
        load(copied, "last", expected=other)
