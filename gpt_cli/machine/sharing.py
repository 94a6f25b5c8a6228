"""How much of this machine other programs use, and how threads wait for each other beside them. Needs no torch.

torch's threads meet after each product. GNU OpenMP, which runs them on Linux, lets a thread that waits spin for about
3 ms before it sleeps. With a core for each thread that is fastest. Where another program needs a core, the thread
spins for one that cannot run, and work takes 2 to 5 times as long (NOTES.md). OpenMP reads how to wait when it is
loaded, but it spins 100 times instead of 300,000 while a process has more of its threads than cores
(GOMP_SPINCOUNT in its manual). So a second team of threads, which do nothing, lets the first one sleep, and the end
of that team lets it spin again. How threads wait changes no result.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

WATCH_EVERY = 0.5  # seconds
# cores that threads lack: sleeping gains from 0.6 on, and costs up to half of the speed where none lacks (NOTES.md)
BUSY_FROM, QUIET_BELOW = 0.6, 0.4
CHOSEN_BY_USER = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_STAT, _MAPS = Path("/proc/stat"), Path("/proc/self/maps")
_USER_TO_STEAL = (0, 1, 2, 5, 6, 7)  # the columns of /proc/stat in which a core works: not idle, not iowait


@dataclass(frozen=True)
class Usage:
    """Processor time up to a moment: of all programs on the cores that this one may use, and its own."""

    at: float  # seconds
    everyone: float  # core seconds
    own: float  # core seconds


def cores() -> int:
    """How many cores this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_usage() -> Usage | None:
    """The processor time up to now; None where the system does not report it."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed, ticks = {f"cpu{number}" for number in os.sched_getaffinity(0)}, 0
    try:
        for line in _STAT.read_text(encoding="ascii").splitlines():
            name, *columns = line.split()
            if name in allowed:
                ticks += sum(int(columns[column]) for column in _USER_TO_STEAL)
    except (OSError, ValueError, IndexError):
        return None
    return Usage(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), time.process_time())


def used_by_others(before: Usage, after: Usage) -> float:
    """How many cores other programs used between two moments."""
    by_others = (after.everyone - before.everyone) - (after.own - before.own)
    return max(0.0, by_others / (after.at - before.at))


def is_busy(num_threads: int, num_cores: int, by_others: float, *, was: bool) -> bool:
    """Whether so many threads lack cores beside other programs; `was` is the last answer, which holds longer."""
    lacking = num_threads + by_others - num_cores
    return num_threads > 1 and lacking > (QUIET_BELOW if was else BUSY_FROM)


def _default_threads() -> int:
    """The number of threads that torch takes by itself."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(wanted) if wanted.isdecimal() and int(wanted) else cores()


class Sharing:
    """Watches the machine, and lets threads sleep while they wait as long as other programs need their cores."""

    def __init__(self, num_threads: int | None):
        self.by_others = 0.0  # cores that other programs used in the last half second
        self.busy = False
        self._num_threads = num_threads or _default_threads()
        self._team: _IdleTeam | None = None
        self._ended = threading.Event()
        self._remarked = False

    def watch(self, before: Usage) -> None:
        """Look at the machine every half second, from `before` to `end()`."""
        while not self._ended.wait(WATCH_EVERY):
            if (after := read_usage()) is None:
                break
            self.by_others = used_by_others(before, after)
            self.busy = is_busy(self._num_threads, cores(), self.by_others, was=self.busy)
            self._let_sleep(self.busy)
            before = after
        self._let_sleep(False)

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()

    def remark(self, notice: Callable[[str], object]) -> None:
        """Report a machine that is busy, once."""
        if self.busy and not self._remarked:
            self._remarked = True
            used = f"other programs use {self.by_others:.1f} of its {cores()} cores"
            notice(f"the machine is busy, so this takes longer: {used}")

    def _let_sleep(self, wanted: bool) -> None:
        if wanted and self._team is None:
            # none before torch is imported, with whose threads it counts
            self._team = _IdleTeam.beside(self._num_threads)
        elif not wanted and self._team is not None:
            self._team.end()
            self._team = None


class _IdleTeam:
    """OpenMP threads that do nothing; they belong to a thread of their own, and end with it."""

    def __init__(self, openmp: ctypes.CDLL, size: int):
        self._openmp, self._size = openmp, size
        self._ended = threading.Event()
        threading.Thread(target=self._hold, name="idle team", daemon=True).start()

    @classmethod
    def beside(cls, num_threads: int) -> _IdleTeam | None:
        """A team that makes the OpenMP threads of this process one more than its cores; None without GNU OpenMP."""
        path = _loaded_openmp()
        return None if path is None else cls(ctypes.CDLL(path), cores() - num_threads + 2)

    def end(self) -> None:
        self._ended.set()

    def _hold(self) -> None:
        # any function will do for what the team runs; this one needs no argument and changes nothing
        nothing = ctypes.cast(self._openmp.omp_get_thread_num, ctypes.c_void_p)
        self._openmp.GOMP_parallel(nothing, None, ctypes.c_uint(self._size), ctypes.c_uint(0))
        self._ended.wait()


def _loaded_openmp() -> str | None:
    """The file of the GNU OpenMP library that this process has loaded; None before torch is imported."""
    with contextlib.suppress(OSError), _MAPS.open(encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")
            if Path(path[2]).name.startswith("libgomp"):
                return path[1] + path[2]
    return None


@contextlib.contextmanager
def sharing(num_threads: int | None = None) -> Iterator[Sharing]:
    """Share the machine with other programs for as long as the context lasts; None means a thread for each core.

    Does nothing where the user chose how threads wait, or where the system does not report what other programs use.
    """
    shared = Sharing(num_threads)
    before = None if any(name in os.environ for name in CHOSEN_BY_USER) else read_usage()
    if before is None:
        yield shared
        return
    thread = threading.Thread(target=shared.watch, args=(before,), name="sharing", daemon=True)
    thread.start()
    try:
        yield shared
    finally:
        shared.end()
        thread.join()
