"""Memory of this process: kept instead of given back, and how much there is."""

from __future__ import annotations

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of glibc's malloc.h


def reuse_memory() -> None:
    """Tell the C library to keep what this process frees, for its next tensors; others than glibc are left alone.

    To ask the system for memory at each step costs more than the arithmetic of a small model (NOTES.md).
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def available_memory() -> int | None:
    """Bytes that programs may still use without swapping; None where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None
