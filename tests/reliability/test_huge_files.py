"""A file of 20 GB where `gpt` expects a small one, or one of its own, is refused for what it is, before it is read."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from support.helpers import Outcome, RunCommand

from gpt_cli.common.untrusted_files import read_bytes
from gpt_cli.errors import DataError

HUGE = 20 * 2**30
LAST = "checkpoints/step-00000020.safetensors"
RESUME = ["train", "--out", "runs/smoke", "--resume", "--max-steps", "21", "--quiet"]


def grow(path: Path, content: bytes | None = None) -> None:
    """Make a sparse file, which takes no disk, of what `path` or `content` contains and zeros."""
    if content is not None:
        path.write_bytes(content)
    os.truncate(path, HUGE)


def watched(run: RunCommand, *arguments: str) -> Outcome:
    """Run `gpt`; fails where Python took a hundredth of such a file: imports and the longest header take less."""
    tracemalloc.start()
    try:
        outcome = run(*arguments)
        assert tracemalloc.get_traced_memory()[1] < HUGE / 100
    finally:
        tracemalloc.stop()
    return outcome


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    grow(tmp_path / "a", b"")
    with pytest.raises(DataError, match=r"a poem has at most 10 bytes, but this file has 21,474,836,480$"):
        read_bytes(tmp_path / "a", DataError, most=("a poem", 10))


@pytest.mark.parametrize(
    "command",
    [["config", "check"], ["config", "show"], ["info"], ["train", "--config"]],
    ids=" ".join,
)
def test_as_a_config(command: list[str], here: Path, run: RunCommand) -> None:
    grow(here / "a.yaml", b"model:\n")
    outcome = watched(run, *command, "a.yaml")
    assert outcome.code == 2
    assert "a config has at most 1,000,000 bytes, but this file has 21,474,836,480" in outcome.err


def test_as_a_prompt(copied: Path, run: RunCommand) -> None:
    grow(Path("a.txt"), b"The")
    outcome = watched(run, "sample", "--run", str(copied), "--prompt-file", "a.txt")
    assert outcome.code == 3
    assert "a prompt has at most 10,000,000 bytes, but this file has 21,474,836,480" in outcome.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "this is not a checkpoint of gpt"),
        (b"PK\3\4", "this is a PyTorch pickle"),
        ((60_000_000).to_bytes(8, "little") + b"{", "this is not a checkpoint of gpt"),
        (b"\xff" * 8, "this is not a checkpoint of gpt"),
    ],
    ids=["zeros", "pickle", "header-of-zeros", "endless-header"],
)
def test_as_a_checkpoint(content: bytes, message: str, here: Path, run: RunCommand) -> None:
    grow(here / "a.safetensors", content)
    for command in (["info", "a.safetensors"], ["sample", "--prompt", "The", "--run", "a.safetensors"]):
        outcome = watched(run, *command)
        assert outcome.code == 4
        assert message in outcome.err


def test_as_checkpoints_of_a_run(copied: Path, run: RunCommand) -> None:
    """Others of the run are used in their place."""
    before = len((copied / LAST).read_bytes())
    grow(copied / LAST)
    grow(copied / "checkpoints/best.safetensors")
    sentence = f"the file is damaged: it has 21,474,836,480 bytes, and its header describes {before:,}"
    outcome = watched(run, "sample", "--run", str(copied), "--prompt", "The", "--max-new-tokens", "1")
    assert (outcome.code, sentence in outcome.err) == (0, True)
    outcome = watched(run, "info", str(copied), "--checkpoint", "10")
    assert (outcome.code, sentence in outcome.out) == (0, True)
    outcome = watched(run, *RESUME)
    assert (outcome.code, sentence in outcome.err) == (0, True)


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("config.yaml", 2, "a config has at most 1,000,000 bytes"),
        ("metrics.jsonl", 3, "a log of a run has at most 1,073,741,824 bytes"),
        ("samples.txt", 3, "a log of a run has at most 1,073,741,824 bytes"),
    ],
)
def test_as_another_file_of_a_run(name: str, code: int, message: str, copied: Path, run: RunCommand) -> None:
    grow(copied / name)
    outcome = watched(run, *RESUME)
    assert outcome.code == code
    assert f'error: "runs/smoke/{name}": {message}, but this file has 21,474,836,480' in outcome.err


def test_a_log_that_is_too_large_may_be_moved_away(copied: Path, run: RunCommand) -> None:
    grow(copied / "metrics.jsonl")
    assert "hint: move it elsewhere; gpt train goes on without it" in run(*RESUME).err
    (copied / "metrics.jsonl").rename("elsewhere")
    assert run(*RESUME).code == 0
