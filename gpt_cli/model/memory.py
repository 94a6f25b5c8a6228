"""Memory that is given back and asked for at each step costs more than the step's arithmetic in a small model."""

from __future__ import annotations

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of glibc's malloc.h


def reuse_memory() -> None:
    """Tell the C library to keep what this process frees, for its next tensors; others than glibc are left alone."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
