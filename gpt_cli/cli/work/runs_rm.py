"""What `gpt runs rm` does; needs no torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gpt_cli.amounts import size
from gpt_cli.checkpoints.find import near_run
from gpt_cli.checkpoints.list import find_runs
from gpt_cli.checkpoints.lock import is_held, sole_trainer
from gpt_cli.checkpoints.run_files import RunFiles, named_run
from gpt_cli.cli.terminal import Console
from gpt_cli.errors import CheckpointError, EnvironmentFailure, GptError, UsageError, counted, shown, together, visible
from gpt_cli.files import remove as remove_file
from gpt_cli.files import remove_directory, remove_if_empty
from gpt_cli.language import say
from gpt_cli.opening import require_reachable


def remove(*, names: list[str], yes: bool, quiet: bool) -> None:
    """Remove runs, once the user agrees; raises before the first is touched where one of them may not be removed."""
    console = Console(quiet)
    runs = _named(names)
    if not yes and not _agreed(runs):
        console.notice("nothing was removed")
        return
    for run in runs:
        _remove(run, console)
        console.result(f"removed {visible(run.path)}")


def _named(names: Sequence[str]) -> list[RunFiles]:
    """The runs of these names, each once; raises every error that keeps one from being removed."""
    found: dict[Path, RunFiles] = {}
    wrong: list[GptError] = []
    for name in names:
        path = named_run(name)
        try:
            _require_removable(path)
            found.setdefault(path.resolve(), RunFiles(path))
        except GptError as error:
            wrong.append(error)
    if wrong:
        raise together(wrong)
    return list(found.values())


def _require_removable(path: Path) -> None:
    run = RunFiles(path)
    if not os.path.isdir(path):
        require_reachable(path)
        raise CheckpointError(shown(path), "there is no such run", hint=near_run(path) or "gpt runs lists the runs")
    if path.is_symlink():
        raise CheckpointError(shown(path), f"this is a link; name the run that it leads to, {shown(path.resolve())}")
    if is_held(path):
        hint = "stop it first, or wait for it"
        raise EnvironmentFailure(shown(path), "this run is being trained, so it is not removed", hint=hint)
    if not run.exists() and not run.steps() and not run.best.exists():
        below = find_runs(path)
        hint = f"name its runs, as in gpt runs rm {visible(path)}/*/" if below else "gpt runs lists the runs"
        sentence = (
            f"this is not a run but a directory of {counted(len(below), 'run')}" if below else "this is not a run"
        )
        raise CheckpointError(shown(path), sentence, hint=hint)


def _agreed(runs: Sequence[RunFiles]) -> bool:
    """Ask whether to remove them; raises UsageError where nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("gpt runs rm", "it asks on a terminal only; --yes removes without asking")
    num_bytes = sum(path.stat().st_size for run in runs for path in run.files())
    names = ", ".join(visible(run.path) for run in runs)
    question = say(f"remove {counted(len(runs), 'run')} ({names}), {size(num_bytes)}? [y/N] ")
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes", "是")


def _remove(run: RunFiles, console: Console) -> None:
    """Remove a run's own files, the config last, so that what a kill leaves is still a run; then what is empty."""
    with sole_trainer(run.path, console.warn):  # nobody begins to train it meanwhile
        for folder in run.logger_folders():
            remove_directory(folder)
        for path in (*run.files(), *run.temporaries()):
            remove_file(path)
        for directory in (run.checkpoints, run.attention, run.logs):
            remove_if_empty(directory)
    if why := remove_if_empty(run.path):
        left = ", ".join(sorted(visible(path.name) for path in run.path.iterdir()))
        if left:
            console.warn(f"{visible(run.path)} stays: it also holds {left}, which no run wrote")
        else:
            console.warn(f"{visible(run.path)} stays, empty: {why}")
