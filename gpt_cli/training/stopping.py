"""How a training learns that it shall stop, and tells what then stands."""

from __future__ import annotations

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
    if session.saved is None:
        return "nothing was saved yet"
    if not session.directory.step_file(session.saved.step).exists():
        return f"the checkpoint of step {session.saved.step} is gone with its directory"
    return f"the checkpoint of step {session.saved.step} is intact"


def lower(session: Session) -> str:
    """What to do about a training that diverged."""
    rate = session.config.train.learning_rate / 3
    return f"start anew with --overwrite and --set train.learning_rate={rate:.1g}, or with --dtype float32"
