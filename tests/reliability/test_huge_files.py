"""A file of 20 GB where `gpt` expects a small one, or one of its own, is refused for what it is, before it is read."""

import os
import tracemalloc
from pathlib import Path

import pytest
from support.helpers import Outcome, RunCommand

HUGE = 20 * 2**30
LAST = "checkpoints/step-00000020.safetensors"
RESUME = ["train", "--out", "runs/smoke", "--resume", "--max-steps", "21", "--quiet"]


def grow(path: Path, content: bytes | None = None) -> None:
    """Make a sparse file, which takes no disk, of what `path` or `content` contains and zeros."""
    if content is not None:
        path.write_bytes(content)
    os.truncate(path, HUGE)


def watched(run: RunCommand, *arguments: str, exits: int) -> Outcome:
    """Run `gpt`; fails where Python took a hundredth of such a file: imports and the longest header take less."""
    tracemalloc.start()
    try:
        outcome = run(*arguments, exits=exits)
        assert tracemalloc.get_traced_memory()[1] < HUGE / 100
    finally:
        tracemalloc.stop()
    return outcome


CONFIG = (2, "a config has at most 1,000,000 bytes")


@pytest.mark.parametrize(
    ("command", "code", "sentence"),
    [
        ("config check", *CONFIG),
        ("train --config", *CONFIG),
        ("sample --run runs/smoke --prompt-file", 3, "a prompt has at most 10,000,000 bytes"),
    ],
)
def test_as_a_config_or_a_prompt(command: str, code: int, sentence: str, copied: Path, run: RunCommand) -> None:
    grow(Path("a.yaml"), b"model:\n")
    outcome = watched(run, *command.split(), "a.yaml", exits=code)
    assert f"{sentence}, but this file has 21,474,836,480" in outcome.err


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
        assert message in watched(run, *command, exits=4).err


def test_as_checkpoints_of_a_run(copied: Path, run: RunCommand) -> None:
    """Others of the run are used in their place."""
    before = len((copied / LAST).read_bytes())
    grow(copied / LAST)
    grow(copied / "checkpoints/best.safetensors")
    sentence = f"the file is damaged: it has 21,474,836,480 bytes, but its header describes {before:,}"
    sample = ["sample", "--run", str(copied), "--prompt", "The", "--max-new-tokens", "1"]
    for command in (sample, ["info", str(copied), "--checkpoint", "10"]):
        outcome = watched(run, *command, exits=0)
        assert sentence in outcome.err + outcome.out
    assert sentence in run(*RESUME, exits=0).err


LOG = (3, "a log of a run has at most 1,073,741,824 bytes")


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [("config.yaml", *CONFIG), ("metrics.jsonl", *LOG), pytest.param("samples.txt", *LOG, marks=pytest.mark.long)],
)
def test_as_another_file_of_a_run(name: str, code: int, message: str, copied: Path, run: RunCommand) -> None:
    grow(copied / name)
    outcome = watched(run, *RESUME, exits=code)
    assert f'error: "runs/smoke/{name}": {message}, but this file has 21,474,836,480' in outcome.err
    if name == "metrics.jsonl":
        assert "hint: move it elsewhere; gpt train continues without it" in outcome.err
        (copied / name).rename("elsewhere")
        run(*RESUME, exits=0)
