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
    settings = session.config.train
    keys = ["learning_rate", "muon_learning_rate"] if settings.optimizer == "muon" else ["learning_rate"]
    rates = " ".join(f"--set train.{key}={getattr(settings, key) / 3:.1g}" for key in keys)
    return f"start anew with --overwrite and {rates}, or with --dtype float32"
