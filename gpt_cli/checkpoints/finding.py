"""Which checkpoint a user means. Needs no torch."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gpt_cli.checkpoints.header import Header, read_header
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.errors import CheckpointError, UsageError, shown
from gpt_cli.opening import require_reachable

RUNS = Path("runs")
# how often to look again when a trainer removes the files that were found before they are read
ATTEMPTS = 10

Read = TypeVar("Read")


def find_header(path: str | Path | None, checkpoint: str | None = None) -> Header:
    """The header of the checkpoint that the user means, or of another one of its run where that one is damaged.

    Commands use it to refuse a wrong layer, head or name before they load torch and the weights. Raises
    CheckpointError.
    """
    return first_usable(path, checkpoint, read_header, warn=lambda _: None)


def first_usable(
    path: str | Path | None,
    checkpoint: str | None,
    read: Callable[[Path], Read],
    warn: Callable[[str], object] | None = None,
) -> Read:
    """Read the checkpoint that the user means; of a run without `checkpoint`, the first that `read` accepts.

    `warn` receives a line for each damaged one that is passed over; without `warn` the first error is raised.
    Where a trainer removes a file meanwhile, the search starts again. Raises CheckpointError.
    """
    for attempt in range(ATTEMPTS):
        files = find_checkpoints(path, checkpoint)
        for file in files:
            try:
                return read(file)
            except CheckpointError as error:
                if not file.exists() and attempt + 1 < ATTEMPTS:
                    break
                if file == files[-1] or warn is None:
                    raise
                warn(f"{error.where}: {error.sentence}; trying another checkpoint of the run")
    raise AssertionError("the last attempt returns or raises")


def find_checkpoint(path: str | Path | None, checkpoint: str | None = None) -> Path:
    """The checkpoint file that is meant; see `find_checkpoints`."""
    return find_checkpoints(path, checkpoint)[0]


def find_checkpoints(path: str | Path | None, checkpoint: str | None = None) -> list[Path]:
    """The checkpoint files that a run directory or file and `best`, `last` or a step mean, in the order to try.

    None takes the newest run under runs/, and of a run the best, then the others, the newest first.
    Raises CheckpointError where there is none, UsageError for a `checkpoint` of another form.
    """
    if checkpoint not in (None, "best", "last") and not (checkpoint.isdecimal() and len(checkpoint) <= 12):
        raise UsageError("--checkpoint", f"use best, last or the number of a step instead of {shown(checkpoint)}")
    run = newest_run() if path is None else Path(path)
    if os.path.isfile(run):  # false, not an error, for a name that is too long
        return [run]
    if not os.path.isdir(run):
        require_reachable(run)
        raise CheckpointError(shown(run), "there is no such run or checkpoint", hint=_runs_hint())
    files = RunFiles(run)
    steps = files.steps()
    newest_first = [steps[step] for step in sorted(steps, reverse=True)]
    best = [files.best] if files.best.exists() else []
    if checkpoint in (None, "best", "last"):
        found = newest_first if checkpoint == "last" else best + newest_first
        if not found and (run / "config.json").is_file():
            hint = f"gpt import {shlex.quote(str(run))} --out {shlex.quote(str(RUNS / run.resolve().name))}"
            raise CheckpointError(shown(run), "this is not a run but a model of transformers", hint=hint)
        if not found:
            raise CheckpointError(shown(run), "this run has no checkpoint yet", hint=_runs_hint())
        return found[: None if checkpoint is None else 1]
    if int(checkpoint) not in steps:
        known = f"only of {', '.join(map(str, steps))}" if steps else "and none of any other step"
        raise CheckpointError(shown(run), f"this run has no checkpoint of step {int(checkpoint)}, {known}")
    return [steps[int(checkpoint)]]


def named_run(name: str) -> Path:
    """What a name means: a run below runs/, as `gpt runs` prints it, else a path; it may begin with . or / or ~."""
    path = Path(os.path.expanduser(name))
    return RUNS / name if name[:1] not in (".", "/", "~") and os.path.isdir(RUNS / name) else path


def newest_run() -> Path:
    """The run under runs/ that was written to last; raises CheckpointError when there is none."""
    candidates = [RunFiles(path) for path in RUNS.iterdir()] if RUNS.is_dir() else []
    runs = [run for run in candidates if run.best.exists() or run.steps()]
    if not runs:
        hint = "gpt train --config tiny trains one; --run names one that is elsewhere"
        raise CheckpointError("runs/", "there is no trained model in this folder", hint=hint)
    return max(runs, key=lambda run: run.checkpoints.stat().st_mtime_ns).path


def _runs_hint() -> str:
    names = [str(path) for path in sorted(RUNS.iterdir())] if RUNS.is_dir() else []
    return f"runs here: {', '.join(names[:10])}" if names else "gpt train --config tiny trains one"
