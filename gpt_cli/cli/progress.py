"""Show progress: a bar on a terminal, lines of text elsewhere. The shown time advances between counts too."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from tqdm import tqdm

from gpt_cli.common.units import duration, size

BAR_SECONDS = 2.0  # work that takes less shows no bar
LINE_SECONDS = 10.0
BEAT_SECONDS = 1.0
_WITH_TOTAL = "{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}]"


class Meter:
    """Base class of progress displays: the task `what` has `total` units of work; None means an unknown number.

    The first `count` starts the clock; then a thread calls `beat` each second, as minutes may pass between two counts.
    """

    def __init__(self, what: str, total: int | None, unit: str):
        self.what, self.total, self.unit = what, total, unit
        self._begun, self._ended = False, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def count(self, amount: int) -> None:
        """Add `amount` units that are done; the first call, perhaps with 0, starts the clock."""
        if not self._begun:
            self.begin()
            self._begun = True
            with contextlib.suppress(RuntimeError):  # the system refuses another thread
                self._thread.start()
        self.add(amount)

    def close(self) -> None:
        """Stop showing progress."""
        self._ended.set()
        if self._begun:
            if self._thread.ident is not None:
                self._thread.join()
            self.end()

    def _run(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            self.beat()

    def begin(self) -> None: ...

    def add(self, amount: int) -> None: ...

    def beat(self) -> None: ...

    def end(self) -> None: ...


class Bar(Meter):
    """A progress bar on stderr that disappears when the work is done; its label `what` must end with a colon."""

    def begin(self) -> None:
        amount = "{n_fmt}B, " if self.unit == "B" else ""
        self._bar = tqdm(
            total=self.total,
            desc=self.what,
            unit=self.unit,
            unit_scale=True,
            bar_format=f"{{desc}}{amount}{{elapsed}}" if self.total is None else _WITH_TOTAL,
            delay=BAR_SECONDS,
            leave=False,
            dynamic_ncols=True,
            file=sys.stderr,
        )

    def add(self, amount: int) -> None:
        self._bar.update(amount)

    def beat(self) -> None:
        if not self._bar.disable and time.time() - self._bar.start_t >= BAR_SECONDS:  # TQDM_DISABLE=1 disables it
            self._bar.delay = 0  # else tqdm does not remove a bar that it has not drawn by itself
            self._bar.refresh()

    def end(self) -> None:
        self._bar.close()


class Lines(Meter):
    """Progress as lines of text, which the function `notice` receives every LINE_SECONDS or less often."""

    def __init__(self, what: str, total: int | None, unit: str, notice: Callable[[str], object]):
        super().__init__(what, total, unit)
        self._notice, self._lock = notice, threading.Lock()
        self._done, self._said = 0, 0

    def begin(self) -> None:
        self._began_at = self._said_at = time.monotonic()

    def add(self, amount: int) -> None:
        self._done += amount
        self.beat()

    def beat(self) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self._said_at < LINE_SECONDS:
                return
            words = [*self._amount(), *self._pace(max(now - self._began_at, 1e-3))]
            self._said_at, self._said = now, self._done
        self._notice(f"{self.what}: {', '.join(words)}")

    def _amount(self) -> Iterator[str]:
        if self.total is not None and self.unit == "B":
            # both in the unit of the total, which is then named once
            number, unit = size(self.total).split(" ")
            yield f"{self._done / max(1, self.total) * float(number):.1f} of {number} {unit}"
        elif self.total is not None:
            yield f"{self._done:,} of {self.total:,} {self.unit}"
        elif self.unit == "B":
            yield size(self._done)

    def _pace(self, seconds: float) -> Iterator[str]:
        """Yield the speed (only for bytes) and the time left; without a total or new amounts, the elapsed `seconds`."""
        if self.total is None or self._done == self._said:
            yield f"{seconds:.0f} s"
            return
        if self.unit == "B":
            yield f"{size(round(self._done / seconds))}/s"
        if self._done < self.total:
            yield f"{duration((self.total - self._done) * seconds / self._done)} left"
