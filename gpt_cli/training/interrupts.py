"""How a training learns that it must stop."""

from __future__ import annotations

from gpt_cli.common.host import Stop
from gpt_cli.distributed.collectives import Ranks
from gpt_cli.errors import GptError


class StopAsked(Exception):  # noqa: N818 - no error
    """A signal arrived. What was being computed is dropped and has changed nothing."""

    def __init__(self, signal: int):
        super().__init__(signal)
        self.signal = signal


class Watch:
    """What is called between pieces of work, with any arguments: raises StopAsked once a rank has a signal.

    All ranks call it together, so all stop at the same place; `alone` is for what one rank does by itself.
    """

    def __init__(self, stop: Stop, ranks: Ranks):
        self._stop, self._ranks = stop, ranks

    def __call__(self, *_: object) -> None:
        failure, own = None, None
        try:
            own = self._stop()
        except GptError as error:
            failure = error
        signal, failed = self._ranks.all_reduce_max(own or 0, failure is not None)
        if failed:
            self._ranks.on_rank_zero(lambda: _raise(failure))
        if signal:
            raise StopAsked(signal)

    def alone(self, *_: object) -> None:
        """Look for a signal to this rank only."""
        if (signal := self._stop()) is not None:
            raise StopAsked(signal)


def _raise(failure: GptError | None) -> None:
    if failure is not None:
        raise failure
