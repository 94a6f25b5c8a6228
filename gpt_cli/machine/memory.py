"""The memory of this machine, and how this process uses it. Needs no torch."""

from __future__ import annotations

import contextlib
import ctypes

PROCESS_BYTES = 250_000_000  # about what Python and torch take in each process of a training
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # of glibc's malloc.h


def reuse_memory() -> None:
    """Make glibc keep the memory that this process frees, for its next tensors; other C libraries stay as they are.

    Asking the system for memory at each step costs more than the arithmetic of a small model (NOTES.md). Threads that
    start later share one heap with the main thread, so that it can reuse what they free.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(_ARENA_MAX, 1)


def available_memory() -> int | None:
    """Bytes that programs may still use without swapping; None where the system does not report them."""
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None
