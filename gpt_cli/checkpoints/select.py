"""Select the checkpoint that the user names, or the default one. Needs no torch."""

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from gpt_cli.checkpoints.header import Header, read_header
from gpt_cli.checkpoints.run_list import find_runs
from gpt_cli.checkpoints.run_paths import RUNS, RunFiles, named_run
from gpt_cli.common.host import NOBODY, Host
from gpt_cli.common.mistyped import nearest
from gpt_cli.common.untrusted_files import require_reachable
from gpt_cli.errors import CheckpointError, UsageError, counted, shown, visible

# searches in all, because a trainer may remove the files between a search and reading
ATTEMPTS = 10
_MOST_LISTED = 10

Read = TypeVar("Read")


def find_header(path: str | Path | None, checkpoint: str | None = None, host: Host = NOBODY) -> Header:
    """Return the header of the first file of `find_checkpoints(path, checkpoint)` whose header is undamaged.

    If `host` has already loaded a model, return the header of that model instead. Raises CheckpointError.
    """
    if host.loaded is not None:
        return host.loaded.header
    return first_usable(path, checkpoint, read_header, host.warn)


def model_began(run: RunFiles, step: int) -> int:
    """Return the step at which the model of `step` began, by the run's newest checkpoint; 0 if the run has none."""
    steps = run.steps()
    teachers = read_header(steps[max(steps)]).progress.teachers if steps else ()
    return max((end for end in teachers if end < step), default=0)


def first_usable(
    path: str | Path | None,
    checkpoint: str | None,
    read: Callable[[Path], Read],
    warn: Callable[[str], object] | None = None,
    expected: Header | None = None,
) -> Read:
    """Return `read(file)` for the first file of `find_checkpoints(path, checkpoint)` that `read` accepts.

    If `read` raises CheckpointError for a file, `warn` receives a line, and the next file is tried. If `warn` is None,
    or no file is left, the error is raised. With `expected`, a header that `find_header` returned, the search begins
    at the file of that header. If a training removes a file meanwhile, the search starts again, ATTEMPTS times in all.
    """
    for attempt in range(ATTEMPTS):
        files = find_checkpoints(path, checkpoint)
        if expected is not None and expected.path.exists():
            files = files[files.index(expected.path) :] if expected.path in files else [expected.path]
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


def find_checkpoints(path: str | Path | None, checkpoint: str | None = None) -> list[Path]:
    """Return the checkpoint files to try, in order; `checkpoint` is "best", "last", the number of a step, or None.

    `path` is a file, or names a run as `named_run` describes; None means the newest run under runs/. If `checkpoint` is
    None, the best checkpoint comes first, then all others, newest first. Raises CheckpointError if there is no such
    file, UsageError for a `checkpoint` of another form.
    """
    if checkpoint not in (None, "best", "last") and not (checkpoint.isdecimal() and len(checkpoint) <= 12):
        raise UsageError("‹checkpoint›", f"{shown(checkpoint)} is not allowed; use best, last or the number of a step")
    run = newest_run() if path is None else named_run(path)
    if os.path.isfile(run):  # false, not an error, for a name that is too long
        if run == RunFiles(run.parent).config and RunFiles(run.parent).exists():
            raise CheckpointError(shown(run), "this is the config of a run, not a checkpoint", hint=run_hint(run))
        if checkpoint not in (None, "best"):
            raise UsageError("‹checkpoint›", f"{shown(run)} is a file, and only runs have checkpoints")
        return [run]
    if not os.path.isdir(run):
        require_reachable(run)
        raise CheckpointError(shown(run), "there is no such run or checkpoint", hint=run_hint(run, trained=True))
    files = RunFiles(run)
    steps = files.steps()
    newest_first = [*reversed(steps.values())]
    best = [files.best] if files.best.exists() else []
    if checkpoint in (None, "best", "last"):
        candidates = newest_first if checkpoint == "last" else best + newest_first
        if not candidates:
            raise _untrained(files)
        return candidates[: None if checkpoint is None else 1]
    if int(checkpoint) not in steps:
        available = f"only of {', '.join(map(str, steps))}" if steps else "and none of any other step"
        raise CheckpointError(shown(run), f"this run has no checkpoint of step {int(checkpoint)}, {available}")
    return [steps[int(checkpoint)]]


def newest_run() -> Path:
    """Return the run under runs/ whose checkpoints changed last; raise CheckpointError if no run has a checkpoint."""
    if not (runs := _runs(trained=True)):
        hint = "gpt train --data my.txt trains a model; or name a model in another folder"
        raise CheckpointError("runs/", "there is no trained model in this folder", hint=hint)
    return runs[0]


def near_run(path: Path, *, trained: bool = False, directories: bool = False) -> Path | None:
    """Return the run that a mistyped path may mean: one that contains it, else one with a similar name, else None.

    `trained` restricts the search to runs with a checkpoint; `directories` adds directories of runs, such as sweeps.
    """
    if inside := next((parent for parent in path.parents if RunFiles(parent).exists()), None):
        return inside
    runs = _runs(trained=trained)
    runs += dict.fromkeys(run.parent for run in runs if directories and RUNS in run.parent.parents)
    names = {name: run for run in runs for name in (run.name, str(run.relative_to(RUNS)))}
    near = nearest(str(path).removeprefix(f"{RUNS}/"), names) or nearest(path.name, names)
    return names[near] if near else None


def run_hint(path: Path | None = None, *, trained: bool = False, directories: bool = False) -> str:
    """Return a hint for an error: the run that `near_run` returns for a mistyped path, or else a list of runs."""
    if path is not None and (near := near_run(path, trained=trained, directories=directories)):
        return f"did you mean {shlex.quote(visible(near))}?"
    runs = _runs(trained=trained)
    return f"runs here: {_listed(runs)}" if runs else "gpt train --data my.txt trains a model"


def _untrained(run: RunFiles) -> CheckpointError:
    """Return the error for a directory without a checkpoint."""
    where = shown(run.path)
    if (run.path / "config.json").is_file():
        hint = f"gpt import {shlex.quote(str(run.path))} --out {shlex.quote(str(RUNS / run.path.resolve().name))}"
        return CheckpointError(where, "this is not a run but a model of transformers", hint=hint)
    below = [] if run.exists() else _runs(run.path)
    if not below:
        wrong = "this run has no checkpoint yet" if run.exists() else "this is not a run"
        return CheckpointError(where, wrong, hint=run_hint(None if run.exists() else run.path, trained=True))
    trained = _runs(run.path, trained=True)
    hint = f"name one of them: {_listed(trained)}" if trained else f"gpt runs {shlex.quote(visible(run.path))}"
    return CheckpointError(where, f"this is not a run but a directory of {counted(len(below), 'run')}", hint=hint)


def _runs(directory: Path = RUNS, *, trained: bool = False) -> list[Path]:
    """Return the runs in a directory (if `trained`, with a checkpoint), newest first; [] if it cannot be read."""
    by_time = dict[Path, int]()
    with suppress(OSError):
        for run in map(RunFiles, find_runs(directory)):
            with suppress(OSError):  # of a run whose checkpoints the user may not see, or that is removed meanwhile
                if not trained or run.best.exists() or run.steps():
                    newest = run.checkpoints if run.checkpoints.exists() else run.path
                    by_time[run.path] = newest.stat().st_mtime_ns
    return sorted(by_time, key=by_time.__getitem__, reverse=True)


def _listed(runs: Sequence[Path]) -> str:
    more = f" and {len(runs) - _MOST_LISTED} more" if len(runs) > _MOST_LISTED else ""
    return ", ".join(visible(run) for run in runs[:_MOST_LISTED]) + more
