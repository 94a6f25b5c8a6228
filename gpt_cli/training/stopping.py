"""How a training learns that it shall stop, and tells what then stands."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from gpt_cli.training.session import Session

Stop = Callable[[], int | None]


class StopAsked(Exception):  # noqa: N818 - no error
    """A signal arrived; what was being computed is dropped, and nothing was changed by it."""

    def __init__(self, signal: int):
        super().__init__(signal)
        self.signal = signal


def watcher(stop: Stop) -> Callable[..., None]:
    """A function to call between pieces of work, with whatever arguments: raises StopAsked once `stop` has a signal."""

    def watch(*_: object) -> None:
        if (signal := stop()) is not None:
            raise StopAsked(signal)

    return watch


def intact(session: Session) -> str:
    """Which checkpoint stands, for the message of an error."""
    if not session.directory.path.is_dir():
        return "the run directory is gone"
    saved = session.directory.steps()
    return f"the checkpoint of step {max(saved)} is intact" if saved else "nothing was saved yet"


def resume_command(session: Session) -> str:
    """What to type to continue."""
    return f"gpt train --out {shlex.quote(str(session.directory.path))} --resume"


def lower(session: Session) -> str:
    """What to do about a training that diverged."""
    rate = session.config.train.learning_rate / 3
    return f"start anew with --overwrite and --set train.learning_rate={rate:.1g}, or with --dtype float32"
