"""Handlers of signals for the time of a work."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator

# what asks a training to stop; batch systems send XCPU where its processor time is used up
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)


@contextlib.contextmanager
def handling(numbers: Iterable[int], hear: Callable[[int, object], object]) -> Iterator[None]:
    """Let `hear` receive the signals of these numbers. One that is ignored stays ignored."""
    heard = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, hear) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
