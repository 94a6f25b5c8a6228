"""Run `gpt sweep` in a terminal: pass signals on to its trainings, which print to the terminal themselves."""

import shlex
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from gpt_cli.cli.console import Console, hurried_stdout, hurry
from gpt_cli.common.machine.signals import STOPS, handling
from gpt_cli.tools.sweeps.request import SweepRequest


def drive(request: SweepRequest, console: Console, *, json: bool, words: Sequence[str]) -> int:
    """Run the trainings of a sweep, or list them in a dry run; return the exit code, 128 + n after stop signal n.

    Prints the result as JSON if `json`. `words`, the command line, is not used.
    """
    host = console.host()
    points = request.find(host)
    from gpt_cli.tools.sweeps.sweep import Planned, sweep

    flags = ["--quiet"] if console.quiet or request.jobs > 1 else []
    result = sweep(request, points, host, _hurrying, flags)
    if isinstance(result, Planned):
        console.show(result, json=json)
        return 0
    if result.signal is not None:
        hurry()
        with hurried_stdout():
            console.show(result, json=json)
        command = f"gpt sweep {shlex.quote(str(request.file))}"
        command += f" --out {shlex.quote(str(request.out))}" if request.out else ""
        command += f" --max-time {request.max_time}" if request.max_time else ""
        command += f" --jobs {request.jobs}" if request.jobs > 1 else ""
        console.warn(f"stopped by {signal.Signals(result.signal).name}; continue: {command}")
        return 128 + result.signal
    console.show(result, json=json)
    if failure := result.failure():
        raise failure
    best = result.runs[0].overview
    if best.result is not None:
        console.notice(f"next: gpt sample --run {shlex.quote(str(best.path))}")
    return 0


def _hurrying(hear: Callable[[int, object], None]) -> AbstractContextManager[None]:
    """Return a context that passes signals to `hear`; after a stop signal, writes to stderr wait at most a second."""

    def heard(number: int, frame: object) -> None:
        if number != signal.SIGUSR1:
            hurry()
        hear(number, frame)

    return handling((*STOPS, signal.SIGUSR1), heard)
