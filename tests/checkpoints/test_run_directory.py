from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import gpt_cli
from gpt_cli.checkpoints.run_directory import RunDirectory, find_checkpoint
from gpt_cli.errors import CheckpointError, UsageError


@pytest.fixture
def copied(smoke_run: Path, here: Path, trained: Path) -> Path:
    """A copy of the trained run that may be damaged, in runs/ of the working folder."""
    shutil.copytree(trained / "runs", here / "runs")
    return Path("runs/smoke")


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1  # among the weights
    path.write_bytes(content)


def test_the_best_the_last_and_a_step_are_found(smoke_run: Path) -> None:
    folder = smoke_run / "checkpoints"
    assert find_checkpoint(None) == find_checkpoint(smoke_run) == folder / "best.safetensors"
    assert find_checkpoint(smoke_run, "last") == folder / "step-00000020.safetensors"
    assert find_checkpoint(smoke_run, "10") == folder / "step-00000010.safetensors"
    assert find_checkpoint(folder / "step-00000010.safetensors") == folder / "step-00000010.safetensors"


def test_what_is_not_there_is_told_with_what_is(smoke_run: Path) -> None:
    with pytest.raises(CheckpointError, match="has no checkpoint of step 5; its steps are 10, 20"):
        find_checkpoint(smoke_run, "5")
    with pytest.raises(UsageError, match=r'"first" is not allowed; use best \| last \| a step'):
        find_checkpoint(smoke_run, "first")
    with pytest.raises(CheckpointError, match="no such run") as raised:
        find_checkpoint("runs/other")
    assert raised.value.hint == "runs here: runs/smoke"


def test_without_a_best_one_the_last_is_taken(copied: Path) -> None:
    (copied / "checkpoints" / "best.safetensors").unlink()
    assert find_checkpoint(copied).name == "step-00000020.safetensors"


def test_an_empty_folder_has_no_runs(here: Path) -> None:
    with pytest.raises(CheckpointError, match="no trained model there"):
        find_checkpoint(None)


def test_a_damaged_newest_checkpoint_is_said_and_the_one_before_used(copied: Path) -> None:
    damage(copied / "checkpoints" / "step-00000020.safetensors")
    said: list[str] = []
    newest = RunDirectory(copied).newest(said.append)
    assert newest is not None
    assert newest.progress.step == 10
    assert len(said) == 1
    assert "step-00000020.safetensors" in said[0]
    assert "trying the one before" in said[0]


def test_a_file_named_explicitly_never_falls_back(copied: Path) -> None:
    damage(copied / "checkpoints" / "step-00000020.safetensors")
    with pytest.raises(CheckpointError, match="damaged"):
        gpt_cli.load(copied, "last")


def test_when_none_verifies_it_is_an_error(copied: Path) -> None:
    for step in (10, 20):
        damage(copied / "checkpoints" / f"step-{step:08}.safetensors")
    with pytest.raises(CheckpointError, match="damaged"):
        RunDirectory(copied).newest(lambda _: None)


def test_pruning_and_clearing_touch_only_what_is_ours(copied: Path) -> None:
    folder = copied / "checkpoints"
    for name in (
        "old-step-00000005.safetensors",
        "step-5.safetensors",
        "step-00000005.safetensors.bak",
        "notes.txt",
    ):
        (folder / name).write_text("mine")
    directory = RunDirectory(copied)
    stored = directory.newest(print)
    assert stored is not None
    directory.save(stored, keep=1)
    assert list(directory.steps()) == [20]
    directory.clear()
    assert not directory.exists() or sorted(os.listdir(folder)) == [
        "notes.txt", "old-step-00000005.safetensors", "step-00000005.safetensors.bak", "step-5.safetensors",
    ]  # fmt: skip


def test_pruning_never_counts_later_files_that_were_passed_over(copied: Path) -> None:
    damage(copied / "checkpoints" / "step-00000020.safetensors")
    directory = RunDirectory(copied)
    stored = directory.newest(lambda _: None)
    assert stored is not None
    at_12 = replace(stored, progress=replace(stored.progress, step=12))
    directory.save(at_12, keep=1)
    assert list(directory.steps()) == [12, 20]


def test_rewinding_drops_a_best_that_is_later_or_damaged(copied: Path) -> None:
    directory = RunDirectory(copied)
    directory.rewind(20)
    assert directory.best.exists()
    content = directory.best.read_bytes()
    directory.rewind(10)  # the best is of step 20
    assert not directory.best.exists()
    directory.best.write_bytes(content[:-1])
    directory.rewind(20)
    assert not directory.best.exists()


def test_rewinding_drops_later_lines_and_repairs_the_last(here: Path) -> None:
    directory = RunDirectory(here)
    directory.metrics.write_text("".join(json.dumps({"step": step}) + "\n" for step in (1, 2, 3)) + '{"step": 4, "lo')
    directory.samples.write_text("=== step 1 ===\none\n=== step 3 ===\nthree\n")
    directory.rewind(2)
    assert directory.metrics.read_text() == '{"step": 1}\n{"step": 2}\n'
    assert directory.samples.read_text() == "=== step 1 ===\none\n"


def test_loading_gives_model_tokenizer_and_config(smoke_run: Path) -> None:
    loaded = gpt_cli.load("runs/smoke")
    ids = loaded.tokenizer.encode("The value")
    import torch

    logits = loaded.model(torch.tensor([ids]))
    assert logits.shape == (1, len(ids), loaded.tokenizer.vocab_size)
    assert loaded.config.model.d_model == 32
    assert loaded.model.attention_weights(torch.tensor([ids])).shape == (2, 1, 2, len(ids), len(ids))
