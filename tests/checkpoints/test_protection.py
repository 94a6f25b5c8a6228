"""Nothing but gpt train writes the files of a run."""

import os
from pathlib import Path

import pytest
from support.helpers import RunCommand

from gpt_cli.checkpoints.lock import require_foreign
from gpt_cli.errors import UsageError

OWN = [
    "checkpoints/best.safetensors",
    "checkpoints/step-00000020.safetensors",
    "checkpoints/step-00000999.safetensors",  # which is not there yet
    "attention/step-00000001.safetensors",
    "metrics.jsonl",
    "samples.txt",
    "outcome.json",
    "loss.png",
    "config.yaml",
    ".lock",
]


@pytest.mark.parametrize("name", OWN)
def test_the_names_of_a_runs_own_files_are_refused_through_links_too(copied: Path, here: Path, name: str) -> None:
    (here / "link").symlink_to(copied.resolve())
    (here / "file").symlink_to(copied.resolve() / name)
    for path in (copied / name, copied / "checkpoints" / ".." / name, Path("link") / name, Path("file")):
        with pytest.raises(UsageError) as raised:
            require_foreign(path)
        assert (raised.value.where, raised.value.hint) == ("‹out›", "name another file")


def test_a_checkpoint_is_refused_wherever_it_is_and_whatever_it_is_called(copied: Path, here: Path) -> None:
    os.link(copied / "checkpoints" / "best.safetensors", here / "a.npz")
    with pytest.raises(UsageError, match=r'^out: "a.npz" is a checkpoint, which gpt never overwrites$'):
        require_foreign(Path("a.npz"))


def test_other_files_may_be_written_in_a_run_too(copied: Path, here: Path) -> None:
    (here / "a").mkdir()
    for path in (copied / "attention.png", copied / "checkpoints" / "a.npz", here / "metrics.jsonl", here / "a/b.npz"):
        require_foreign(path)
    os.symlink("circle", here / "circle")
    require_foreign(here / "circle")


@pytest.mark.parametrize(
    "words",
    [
        ["attn-dump", "--prompt", "The", "--out", "runs/smoke/checkpoints/best.safetensors"],
        ["explain", "--study", "mask", "--out", "a.svg"],
        ["heads", "--out", "a.svg"],
    ],
)
def test_commands_leave_a_checkpoint_as_it_is(copied: Path, here: Path, run: RunCommand, words: list[str]) -> None:
    best = copied / "checkpoints" / "best.safetensors"
    os.link(best, here / "a.svg")
    before = best.read_bytes()
    outcome = run(*words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f'error: --out: "{words[-1]}" is a checkpoint, which gpt never overwrites\n')
    assert best.read_bytes() == (here / "a.svg").read_bytes() == before
