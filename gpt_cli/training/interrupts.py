"""Stop a training at a signal, at the same point on all ranks."""

from gpt_cli.common.host import Stop
from gpt_cli.distributed.collectives import Ranks
from gpt_cli.errors import GptError


class StopRequested(Exception):  # noqa: N818 - no error
    """Raised when a signal asks a training to stop. The interrupted computation is dropped and has changed nothing."""

    def __init__(self, signal: int):
        super().__init__(signal)
        self.signal = signal


class Watch:
    """A callback that training calls between pieces of work; it raises StopRequested if any rank has received a signal.

    All ranks must call the Watch together, to stop at the same point; a rank that works alone calls `alone` instead.
    Calls ignore their arguments.
    """

    def __init__(self, stop: Stop, ranks: Ranks):
        self._stop, self._ranks = stop, ranks

    def __call__(self, *_: object) -> None:
        failure, received = None, None

        def fail() -> None:
            if failure is not None:
                raise failure

        try:
            received = self._stop()
        except GptError as error:
            failure = error
        signal, failed = self._ranks.all_reduce_max(received or 0, failure is not None)
        if failed:
            self._ranks.on_rank_zero(fail)
        if signal:
            raise StopRequested(signal)

    def alone(self, *_: object) -> None:
        """Raise StopRequested if this rank has received a signal, without asking the other ranks."""
        if (signal := self._stop()) is not None:
            raise StopRequested(signal)
