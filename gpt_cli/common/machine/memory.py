"""Measure free memory, let this process reuse what it frees, and check memory before torch is imported."""

import contextlib
import ctypes
import gc
import os
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from gpt_cli.common.files import working_folder
from gpt_cli.common.limits import TORCH_ADDRESS_SPACE
from gpt_cli.common.units import size
from gpt_cli.errors import EnvironmentFailure

_PROC_MEMINFO, _PROC_CGROUP = Path("/proc/meminfo"), Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8  # of glibc's malloc.h


def reuse_memory() -> None:
    """Make glibc keep the memory that this process frees, for its next tensors; do nothing with other C libraries.

    Asking the system for memory at each step costs more than the arithmetic of a small model (note 0001). Threads that
    start later share one heap with the main thread, so memory that they free can be reused.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(_ARENA_MAX, 1)


@contextlib.contextmanager
def returned_memory() -> Iterator[None]:
    """After the context, undo `reuse_memory`, but for the shared heap: freed large arrays go back to the system."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError, AttributeError, TypeError):
            libc = ctypes.CDLL(None)
            libc.mallopt(_MMAP_MAX, 65536)
            libc.mallopt(_MMAP_THRESHOLD, 2**25)  # which glibc itself reaches once a program frees large arrays
            libc.mallopt(_TRIM_THRESHOLD, 2**26)
            libc.malloc_trim(0)


def available_memory() -> int | None:
    """Return the bytes that this process may still use without swapping; None where the system does not report them.

    The machine and each control group (version 2) of the process, as of a container or a Slurm job, set a limit.
    """
    limits = list[int]()
    with contextlib.suppress(OSError):
        limits += [int(number) * 1024 for number in re.findall(r"MemAvailable: +(\d+)", _PROC_MEMINFO.read_text())]
        group = _CGROUPS / _PROC_CGROUP.read_text().rpartition("0::/")[2].strip()
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):  # no limit: "max"
                most, used = (int((folder / f"memory.{name}").read_text()) for name in ("max", "current"))
                unused_cache = re.findall(r"^inactive_file (\d+)", (folder / "memory.stat").read_text(), re.MULTILINE)
                limits.append(max(0, most - used + sum(map(int, unused_cache))))
    return min(limits, default=None)


def require_address_space(num_bytes: int, who: str) -> None:
    """Raise EnvironmentFailure if `ulimit -v` allows fewer than the `num_bytes` that `who`, such as PyTorch, needs."""
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed != resource.RLIM_INFINITY and allowed < num_bytes:
        needs = f"{who} needs {num_bytes / 1e6:.0f} MB of address space"
        hint = f"raise the limit, which ulimit -v shows, to {num_bytes // 1024} or more"
        raise EnvironmentFailure("memory", f"{needs}, but this process may have {allowed / 1e6:.0f} MB", hint=hint)


@contextlib.contextmanager
def importing_torch() -> Iterator[None]:
    """Hide from Python's garbage collector the 300,000 objects that an import of torch in this context makes.

    The collector would search these objects again and again, and find next to no garbage (note 0043). Raises
    EnvironmentFailure if `ulimit -v` allows too little memory, or if the working directory is gone.
    """
    if "torch" in sys.modules:
        yield
        return
    require_address_space(TORCH_ADDRESS_SPACE, "PyTorch")
    working_folder()  # without a working directory, MKL would end the process
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        if affinity:  # with OMP_PROC_BIND, the import leaves this thread, and all that it starts, a single core
            os.sched_setaffinity(0, affinity)


def require_available(
    where: str, about: str, num_bytes: int, free: int | None, *, hint: str, what: str = "memory"
) -> None:
    """Raise EnvironmentFailure if `num_bytes` bytes are needed and only `free` are free (None: unknown, no error).

    The error names the command or flag (`where`), what needs the bytes (`about`: "8 heads") and the memory (`what`).
    """
    if free is not None and num_bytes > free:
        wrong = f"{about} take about {size(num_bytes)} of {what}, but only {size(free)} are free"
        raise EnvironmentFailure(where, wrong, hint=hint)
