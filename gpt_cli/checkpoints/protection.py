"""Keeps other commands from writing over the files of a run. Needs no torch."""

from __future__ import annotations

import contextlib
from pathlib import Path

from gpt_cli.checkpoints.header import is_checkpoint
from gpt_cli.checkpoints.lock import NAME as LOCK
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.errors import UsageError, shown
from gpt_cli.files import require_place, require_writable

_HINT = "name another file"


def require_foreign(path: Path, flag: str = "--out") -> None:
    """Raises UsageError where `path`, which `flag` names, is a checkpoint or a file of a run, through links too.

    A hard link to a checkpoint is one. A name that a run would give to a file is refused before the file exists. Raises
    EnvironmentFailure where no file can be written.
    """
    with contextlib.suppress(OSError, RuntimeError):  # a circle of links, a missing permission: the writer reports it
        target = path.resolve()
        if target.is_file() and is_checkpoint(target):
            raise UsageError(flag, f"{shown(path)} is a checkpoint, which gpt never overwrites", hint=_HINT)
        if (run := _run_of(target)) is not None:
            wrong = f"{shown(path)} is a file of the run {shown(run)}, which only gpt train writes"
            raise UsageError(flag, wrong, hint=_HINT)
    require_place(path)
    require_writable(path.parent, path)


def _run_of(target: Path) -> Path | None:
    """The run that owns a file of this name, None where there is none."""
    for directory in (target.parent, target.parent.parent):
        files = RunFiles(directory)
        own = (files.metrics, files.samples, files.outcome, files.loss_picture, files.config, files.best)
        if files.exists() and (target in (*own, directory / LOCK) or files.is_step_file(target)):
            return directory
    return None
