"""Measure how much CPU other programs use; let torch's waiting threads sleep while cores are scarce. Needs no torch.

On Linux, a torch thread that waits for another thread spins for about 3 ms before it sleeps, since torch uses GNU
OpenMP. Spinning is fastest if each thread has a core. If another program needs a core, a thread may spin while
the thread it waits for has no core, and work takes 2 to 5 times as long (note 0002). Threads spin 100 times instead of
300,000 while the process has more OpenMP threads than cores (GOMP_SPINCOUNT in the OpenMP manual). So a team of idle
threads makes torch's waiting threads sleep until the team ends. How threads wait changes no result.
"""

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

WATCH_EVERY = 0.5  # seconds
# cores that threads lack: from 0.6 on, sleeping saves time; if none lacks, it costs up to half the speed (note 0002)
BUSY_FROM, QUIET_BELOW = 0.6, 0.4
CHOSEN_BY_USER = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_STAT, _MAPS = Path("/proc/stat"), Path("/proc/self/maps")
_USER_TO_STEAL = (0, 1, 2, 5, 6, 7)  # the columns of /proc/stat in which a core works: not idle, not iowait


@dataclass(frozen=True)
class Usage:
    """A reading at time `at` of CPU seconds: of all programs on this process's cores, and of this process alone."""

    at: float  # seconds
    everyone: float  # core seconds
    this_process: float  # core seconds


def cores() -> int:
    """Return the number of cores that this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_usage() -> Usage | None:
    """Return the processor time used up to now; None if the system does not report it."""
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
    """Return how many cores other programs used on average between two readings."""
    by_others = (after.everyone - before.everyone) - (after.this_process - before.this_process)
    return max(0.0, by_others / (after.at - before.at))


def is_busy(num_threads: int, num_cores: int, by_others: float, *, was: bool) -> bool:
    """Return whether threads lack cores if other programs use `by_others`; a previous True (`was`) lowers the limit."""
    lacking = min(num_threads, num_cores) + by_others - num_cores
    return num_threads > 1 and lacking > (QUIET_BELOW if was else BUSY_FROM)


class Sharing:
    """Monitor of the cores, which lets torch's waiting threads sleep while other programs need the cores."""

    def __init__(self, notice: Callable[[str], object] | None = None):
        self.busy = False
        self._notice = notice
        self._by_others = 0.0  # cores, in the last half second
        self._team_ended: threading.Event | None = None
        self.ended, self._remarked, self._lock = threading.Event(), False, threading.Lock()

    def watch(self, before: Usage) -> None:
        """Measure twice a second how busy the cores are, from reading `before` on, until the event `ended` is set."""
        while not self.ended.wait(WATCH_EVERY):
            if (after := read_usage()) is None:
                break
            self._by_others = used_by_others(before, after)
            before = after
            self._decide()
            if self._notice is not None:
                self.remark(self._notice)
        with self._lock:
            self._let_sleep(False)

    def remark(self, notice: Callable[[str], object]) -> None:
        """Send `notice` a line if the machine is busy and no earlier call has sent one."""
        self._decide()
        if self.busy and not self._remarked:
            self._remarked = True
            used = f"other programs use {self._by_others:.1f} of its {cores()} cores"
            notice(f"the machine is busy, so gpt is slower: {used}")

    def _decide(self) -> None:
        """Let torch's waiting threads sleep or spin, by the last measurement; do nothing before torch is imported."""
        num_threads = _torch_threads()
        with self._lock:
            if num_threads is not None and not self.ended.is_set():
                was, self.busy = self.busy, is_busy(num_threads, cores(), self._by_others, was=self.busy)
                if was != self.busy:
                    self._let_sleep(self.busy)

    def _let_sleep(self, wanted: bool) -> None:
        if self._team_ended is not None:
            self._team_ended.set()
        self._team_ended = _idle_team(_torch_threads() or 1) if wanted else None


def _torch_threads() -> int | None:
    """Return the number of torch's CPU threads; None before torch is imported."""
    count = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return None if count is None else count()


def _idle_team(num_threads: int) -> threading.Event | None:
    """Start a team of idle threads: with torch's `num_threads`, this process then has more OpenMP threads than cores.

    Returns the event that ends the team; None without GNU OpenMP, with more torch threads than cores, or on failure.
    """
    if (path := _loaded_openmp()) is None:
        return None
    openmp, ended = ctypes.CDLL(path), threading.Event()
    size = openmp.omp_get_num_procs() - num_threads + 2
    if size < 2 or not _may_start(size):
        return None

    def hold() -> None:
        # any function will do for what the team runs; this one needs no argument and changes nothing
        nothing = ctypes.cast(openmp.omp_get_thread_num, ctypes.c_void_p)
        openmp.GOMP_parallel(nothing, None, ctypes.c_uint(size), ctypes.c_uint(0))
        ended.wait()

    threading.Thread(target=hold, name="idle team", daemon=True).start()  # the team ends with its thread
    return ended


def _may_start(number: int) -> bool:
    """Return whether the system lets this process start `number` threads; if not, OpenMP would end the process."""
    enough = threading.Event()
    threads = [threading.Thread(target=enough.wait, daemon=True) for _ in range(number)]
    try:
        for thread in threads:
            thread.start()
    except RuntimeError:
        return False
    finally:
        enough.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    return True


def _loaded_openmp() -> str | None:
    """Return the path of the GNU OpenMP library that this process has loaded; None before torch loads one."""
    with contextlib.suppress(OSError), _MAPS.open(encoding="utf-8", errors="replace") as maps:
        for line in maps:
            _, slash, path = line.rstrip("\n").partition("/")
            if Path(path).name.startswith("libgomp"):
                return slash + path
    return None


@contextlib.contextmanager
def sharing(notice: Callable[[str], object] | None = None) -> Iterator[Sharing]:
    """Let torch's waiting threads sleep while other programs need the cores, for as long as the context lasts.

    If the machine is busy, another thread sends `notice` one line; a caller without `notice` may call `remark` of the
    yielded Sharing. Does nothing if an environment variable of OpenMP sets how threads wait, or if the system does not
    report what other programs use.
    """
    shared = Sharing(notice)
    before = None if any(name in os.environ for name in CHOSEN_BY_USER) else read_usage()
    thread = threading.Thread(target=shared.watch, args=(before,), name="sharing", daemon=True)
    if before is not None:
        with contextlib.suppress(RuntimeError):  # the system refuses another thread
            thread.start()
    try:
        yield shared
    finally:
        shared.ended.set()
        if thread.ident is not None:
            thread.join()
