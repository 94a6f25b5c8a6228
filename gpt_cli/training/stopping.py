"""How a training learns that it must stop."""

from __future__ import annotations

from collections.abc import Callable

from gpt_cli.callbacks import Stop


class StopAsked(Exception):  # noqa: N818 - no error
    """A signal arrived. What was being computed is dropped and has changed nothing."""

    def __init__(self, signal: int):
        super().__init__(signal)
        self.signal = signal


def watcher(stop: Stop) -> Callable[..., None]:
    """A function to call between pieces of work, with any arguments: raises StopAsked once `stop` has a signal."""

    def watch(*_: object) -> None:
        if (signal := stop()) is not None:
            raise StopAsked(signal)

    return watch
