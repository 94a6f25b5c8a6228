"""Which checkpoint a user means, and the model in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.config import Config
from gpt_cli.errors import CheckpointError, UsageError, shown
from gpt_cli.model import GPT
from gpt_cli.text.tokenizer import Tokenizer

RUNS = Path("runs")
# how often files are looked for anew when a trainer removes them before they are read
ATTEMPTS = 10


@dataclass(frozen=True)
class Loaded:
    """A trained model with all that is needed to use it."""

    model: GPT
    tokenizer: Tokenizer
    config: Config
    step: int
    path: Path


def load(
    path: str | Path | None = None, checkpoint: str | None = None, warn: Callable[[str], object] | None = None
) -> Loaded:
    """The model of a run directory or file; without `checkpoint` the best that verifies, damaged ones told to `warn`.

    A file or checkpoint that is named is taken or refused, as is the first one where there is no `warn`.
    A file that a trainer removes meanwhile is looked for anew. Raises CheckpointError.
    """
    for attempt in range(ATTEMPTS):
        files = find_checkpoints(path, checkpoint)
        for file in files:
            try:
                stored = read_checkpoint(file)
                return Loaded(stored.build_model(), stored.tokenizer, stored.config, stored.progress.step, file)
            except CheckpointError as error:
                if not file.exists() and attempt + 1 < ATTEMPTS:
                    break
                if file == files[-1] or warn is None:
                    raise
                warn(f"{error}; trying another one of the run")
    raise AssertionError("the last attempt returns or raises")


def find_checkpoint(path: str | Path | None, checkpoint: str | None = None) -> Path:
    """The checkpoint file that is meant; see `find_checkpoints`."""
    return find_checkpoints(path, checkpoint)[0]


def find_checkpoints(path: str | Path | None, checkpoint: str | None = None) -> list[Path]:
    """The checkpoint files that a run directory or file and `best`, `last` or a step mean, in the order to try.

    None takes the newest run under runs/, and of a run the best, then the others, the newest first.
    Raises CheckpointError where there is none.
    """
    run = newest_run() if path is None else Path(path)
    if os.path.isfile(run):  # false, not an error, for a name that is too long
        return [run]
    if not os.path.isdir(run):
        raise CheckpointError(shown(run), "no such run or checkpoint", hint=_runs_hint())
    directory = RunDirectory(run)
    steps = directory.steps()
    newest_first = [steps[step] for step in sorted(steps, reverse=True)]
    best = [directory.best] if directory.best.exists() else []
    if checkpoint in (None, "best", "last"):
        found = newest_first if checkpoint == "last" else best + newest_first
        if not found:
            raise CheckpointError(shown(run), "has no checkpoint", hint=_runs_hint())
        return found[: None if checkpoint is None else 1]
    if not checkpoint.isdecimal() or len(checkpoint) > 12:
        raise UsageError("--checkpoint", f"{shown(checkpoint)} is not allowed", "use best | last | a step")
    if int(checkpoint) not in steps:
        known = ", ".join(map(str, steps)) or "none"
        raise CheckpointError(shown(run), f"has no checkpoint of step {checkpoint}", f"its steps are {known}")
    return [steps[int(checkpoint)]]


def newest_run() -> Path:
    """The run under runs/ that was written to last; raises CheckpointError when there is none."""
    candidates = [RunDirectory(path) for path in RUNS.iterdir()] if RUNS.is_dir() else []
    runs = [run for run in candidates if run.best.exists() or run.steps()]
    if not runs:
        raise CheckpointError("runs/", "no trained model there", hint="gpt train --config tiny, or name one with --run")
    return max(runs, key=lambda run: run.checkpoints.stat().st_mtime_ns).path


def _runs_hint() -> str:
    names = [str(path) for path in sorted(RUNS.iterdir())] if RUNS.is_dir() else []
    return f"runs here: {', '.join(names[:10])}" if names else "train one with gpt train --config tiny"
