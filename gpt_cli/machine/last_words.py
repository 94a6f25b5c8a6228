"""Writing to a pipe or a terminal that nobody may read."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable

# seconds
LOOK_EVERY = 0.1
PATIENCE = 1.0  # for a reader that is slow, once a command was asked to stop


def write_until(descriptor: int, content: bytes, is_late: Callable[[], bool]) -> bool:
    """Write all of the content, as its reader takes it; False where `is_late` said so before. Raises OSError."""
    while content:
        if select.select([], [descriptor], [], LOOK_EVERY)[1]:
            content = content[os.write(descriptor, content[: select.PIPE_BUF]) :]  # so much never waits
        elif is_late():
            return False
    return True


def say_at_last(text: str) -> None:
    """Write to stderr before the process ends, which waits a second at most for the reader."""
    late_at = time.monotonic() + PATIENCE
    with contextlib.suppress(OSError):  # the terminal may have gone away
        write_until(2, text.encode(), lambda: time.monotonic() > late_at)
