import errno
import io
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.helpers import damage

import gpt_cli.common.untrusted_files
from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.errors import CheckpointError, EnvironmentFailure


def newest(run: Path, warn: Callable[[str], object] = print) -> Checkpoint:
    stored = RunDirectory(run).newest(warn)
    assert stored is not None
    return stored


def test_when_none_verifies_it_is_an_error(copied: Path) -> None:
    for step in (10, 20):
        damage(copied / "checkpoints" / f"step-{step:08}.safetensors")
    said: list[str] = []
    with pytest.raises(CheckpointError, match=r"step-00000010\.safetensors.*damaged"):
        RunDirectory(copied).newest(said.append)
    assert len(said) == 1, "of the first checkpoint there is none before to try"


class BrokenFile(io.FileIO):
    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("left", ["best and metrics", "metrics"])
def test_a_run_that_lost_its_checkpoints_is_not_started_over(copied: Path, left: str) -> None:
    directory = RunDirectory(copied)
    for path in (*directory.steps().values(), *([] if "best" in left else [directory.best])):
        path.unlink()
    with pytest.raises(CheckpointError) as raised:
        directory.newest(print)
    assert raised.value.lines() == [
        'error: "runs/smoke": the run was trained to step 20, but its checkpoints are gone',
        "hint: put a checkpoint back, or replace the run with --overwrite",
    ]
    directory.best.unlink(missing_ok=True)
    directory.metrics.write_text('{"step": 10}\n{"st')
    with pytest.raises(CheckpointError, match="trained to step 10, but its checkpoints are gone"):
        directory.newest(print)  # the run ended, so it had saved
    # what a kill before the first checkpoint leaves, with its last line cut off
    directory.outcome.unlink()
    assert directory.newest(print) is None


def test_a_checkpoint_on_a_broken_disk_is_passed_over(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = (copied / "checkpoints" / "step-00000020.safetensors").stat().st_ino

    def opened(descriptor: int, mode: str) -> io.FileIO:
        broken = os.fstat(descriptor).st_ino == last
        return (BrokenFile if broken else io.FileIO)(descriptor, mode)

    monkeypatch.setattr(gpt_cli.common.untrusted_files, "open", opened, raising=False)
    said: list[str] = []
    assert newest(copied, said.append).progress.step == 10
    assert said == [
        '"runs/smoke/checkpoints/step-00000020.safetensors": input/output error; trying the checkpoint before it'
    ]


STRANGERS = ["notes.txt", "old-step-00000005.safetensors", "step-00000005.safetensors.bak", "step-5.safetensors"]


def test_pruning_and_starting_anew_touch_only_what_is_ours(copied: Path) -> None:
    folder, ours = copied / "checkpoints", "step-00000001.safetensors"
    for name in (*STRANGERS, ours):
        (folder / name).write_text("mine")
    directory, stored = RunDirectory(copied), newest(copied)
    directory.save(stored, keep=1)
    assert list(directory.steps()) == [1, 20], "also a file of our name is spared if it has another content"
    (folder / ours).unlink()
    directory.open_for(stored.config)
    assert sorted(os.listdir(folder)) == STRANGERS
    assert sorted(os.listdir(copied)) == ["checkpoints", "config.yaml"]


def test_what_killed_writers_left_is_removed_at_the_next_start(copied: Path) -> None:
    left = copied / "checkpoints" / ".step-00000030.safetensors.123.0a1b2c3d.tmp"
    others = [copied / ".notes.txt.123.0a1b2c3d.tmp", copied / "checkpoints" / ".step-30.safetensors.tmp"]
    for path in (left, *others):
        path.write_text("half")
    RunDirectory(copied).open_for(newest(copied).config, after=20)
    assert [path.exists() for path in (left, *others)] == [False, True, True]


def test_a_run_that_the_disk_cannot_hold_is_refused(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = RunDirectory(copied)
    held = sum(path.stat().st_size for path in (*directory.steps().values(), directory.best))
    free = {directory.checkpoints: 1_000_000 - held}  # which may be a link to another disk
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free.get(path, 0)))
    directory.require_space(1_000_000)
    with pytest.raises(EnvironmentFailure, match=r"the run needs up to 1 MB of disk, but only 1 MB are free"):
        directory.require_space(1_000_001)
    for keeps_several in (False, True):
        with pytest.raises(EnvironmentFailure, match="the run needs up to 2 MB of disk") as raised:
            directory.require_space(2_000_000, keeps_several=keeps_several)
        assert ("‹train.keep_checkpoints=1›" in str(raised.value.hint)) == keeps_several


def test_pruning_never_counts_later_files_that_were_passed_over(copied: Path) -> None:
    damage(copied / "checkpoints" / "step-00000020.safetensors")
    directory, stored = RunDirectory(copied), newest(copied)
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


def test_rewinding_drops_later_lines_and_those_whose_step_is_no_number(here: Path) -> None:
    directory = RunDirectory(here)
    lines = '{"step": 1}\n{"step": "two"}\n{"step": 1e999}\n{"step": 2}\n{"step": 3}\n{"step": 2, "lo'
    directory.metrics.write_text(lines)
    directory.samples.write_text("=== step 1 ===\none\n=== step 3 ===\nthree\n")
    directory.rewind(2)
    assert directory.metrics.read_text() == '{"step": 1}\n{"step": 2}\n'
    assert directory.samples.read_text() == "=== step 1 ===\none\n"


def test_snapshots_after_the_step_of_a_continued_run_are_dropped(copied: Path) -> None:
    directory, config = RunDirectory(copied), newest(copied).config
    for step in (1, 20, 21, 100_000_000):
        directory.add_snapshot(step, b"seen")
    left = directory.attention / ".step-00000030.safetensors.123.0a1b2c3d.tmp"
    for path in (left, directory.attention / "notes.txt"):
        path.write_text("half")
    directory.open_for(config, after=20)
    assert list(directory.snapshots()) == [1, 20]
    assert not left.exists()
    directory.open_for(config)
    assert os.listdir(directory.attention) == ["notes.txt"]
