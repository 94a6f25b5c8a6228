"""Handle signals that end a command, and write to a pipe or a terminal whose reader may be slow or gone."""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator

# signals that ask a training to stop; batch systems send XCPU when its processor time is used up
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)
# seconds
LOOK_EVERY = 0.1
PATIENCE = 1.0  # to wait for a slow reader, after a command was asked to stop


@contextlib.contextmanager
def handling(numbers: Iterable[int], hear: Callable[[int, object], object]) -> Iterator[None]:
    """Call `hear(number, frame)` at signals in `numbers` during the context; ignored signals stay ignored."""
    heard = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, hear) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def held_back(number: int) -> Iterator[None]:
    """Block a signal in this thread during the context; a child process inherits the block until it calls `dropped`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (number,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def dropped(number: int) -> Iterator[None]:
    """Unblock and discard a signal during the context, even a pending one; the signal stays unblocked afterwards."""
    with handling((number,), lambda *_: None):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
        yield


def write_until(descriptor: int, content: bytes, is_late: Callable[[], bool]) -> bool:
    """Write `content` as fast as its reader reads; return False if `is_late()` turns true first. Raises OSError."""
    while content:
        if select.select([], [descriptor], [], LOOK_EVERY)[1]:
            content = content[os.write(descriptor, content[: select.PIPE_BUF]) :]  # this much never waits
        elif is_late():
            return False
    return True


def say_at_last(text: str) -> None:
    """Write a last text to stderr before the process ends; wait at most one second for a slow reader."""
    late_at = time.monotonic() + PATIENCE
    with contextlib.suppress(OSError):  # the terminal may have gone away
        write_until(2, text.encode(sys.stderr.encoding, "backslashreplace"), lambda: time.monotonic() > late_at)
