"""The interface between a long task and its caller: lines for the user, progress, and requests to stop."""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

# receives a line for the user
Notify = Callable[[str], object]
# returns the number of a signal that asks to stop, or None
Stop = Callable[[], int | None]
# opens a progress bar: (task, total amount or None if unknown, unit) -> a function that receives amounts
Counting = Callable[[str, int | None, str], AbstractContextManager[Callable[[int], object]]]


def both(count: Callable[[int], object], watch: Callable[[], object]) -> Callable[[int], None]:
    """Return a function that passes each amount of progress to `count`, then calls `watch`."""

    def counted(amount: int) -> None:
        count(amount)
        watch()

    return counted


@contextlib.contextmanager
def uncounted(_what: str, _total: int | None, _unit: str) -> Iterator[Callable[[int], object]]:
    """Yield a function that ignores amounts, so that a task shows no progress: the default of `Host.counting`."""
    yield lambda _: None


def ignored(_: str) -> None:
    """Ignore a line for the user: the default of `Host.notice` and `Host.warn`."""


@dataclass(frozen=True)
class Host:
    """What the caller of a long task, such as the command line or a notebook, provides to the task.

    `notice` and `warn` receive lines for the user; `counting` shows progress. A task reads the prompt from `stdin` if
    the request's prompt is missing or "-". A task uses the model `loaded`, from `gpt_cli.load`, unless `loaded` is
    None. A training ends when `stop()` returns a signal's number; until then, `stop()` returns None. After a step, a
    training saves if `save_requested()` is true, and may call `remark` to report a busy processor.
    """

    notice: Notify = ignored
    warn: Notify = ignored
    counting: Counting = uncounted
    importing: Callable[[], AbstractContextManager[None]] = nullcontext  # surrounds the import of torch
    writing: Callable[[], AbstractContextManager[None]] = nullcontext  # surrounds the writing of a long file
    stdin: TextIO | None = None
    loaded: Any = None
    stop: Stop = lambda: None
    save_requested: Callable[[], bool] = lambda: False
    remark: Callable[[], None] = lambda: None
    # functions that training/ does not import: one reads models of other programs, one opens loggers
    read_foreign: Callable[[Path], Any] | None = None
    loggers: Callable[..., AbstractContextManager[Any]] | None = None

    def notices(self, lines: Iterable[str]) -> None:
        """Send each of the lines to `notice`."""
        for line in lines:
            self.notice(line)

    @contextlib.contextmanager
    def started(self, what: str, total: int | None, unit: str) -> Iterator[Callable[[int], object]]:
        """Open a progress bar as `counting` does, but start its clock now instead of at the first amount."""
        with self.counting(what, total, unit) as count:
            count(0)
            yield count

    def working(self, what: str) -> AbstractContextManager[object]:
        """Show the elapsed time of the task `what`, of unknown length, while the context lasts."""
        return self.started(what, None, "")


NOBODY = Host()


def tqdm_of_here() -> Any:
    """Return tqdm's class for a terminal or a notebook, without tqdm's warning about widgets that a notebook lacks."""
    from tqdm import TqdmWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TqdmWarning)  # without widgets it draws a line of text
        from tqdm.auto import tqdm
    return tqdm


def drawn(host: Host, delay: float = 0.0) -> Host:
    """Return a copy of `host` that shows tqdm bars for tasks that take longer than `delay` seconds."""

    @contextlib.contextmanager
    def counting(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], object]]:
        with tqdm_of_here()(desc=what, total=total, unit=unit, leave=False, delay=delay) as bar:
            yield bar.update

    return replace(host, counting=counting)
