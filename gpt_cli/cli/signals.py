"""Signals that ask a training to stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


class StopSignals:
    """Remembers the first signal that asks to stop; the second one ends the process at once."""

    def __init__(self) -> None:
        self.received: int | None = None

    def __call__(self) -> int | None:
        """The number of the signal that arrived, or None."""
        return self.received

    def handle(self, number: int, _: object) -> None:
        if self.received is not None:
            os._exit(128 + number)
        self.received = number


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Listen for INT, TERM and HUP; one that is ignored (HUP under nohup) stays ignored."""
    signals = StopSignals()
    listened = [s for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
    before = {number: signal.signal(number, signals.handle) for number in listened}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
