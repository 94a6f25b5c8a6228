"""Handle signals that ask a training to stop or to save.

A thread receives a training's signals, because Python runs handlers only between operations of the main thread.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpt_cli.cli.console import hurry
from gpt_cli.common.language import say
from gpt_cli.common.machine.signals import STOPS, handling, say_at_last

# timeout signals its child and then the group, and shells pass on Ctrl-C and HUP: one request may arrive twice
SAME_REQUEST_SECONDS = 1.0


@dataclass
class Signals:
    """The signals that ask a training to save a checkpoint (USR1) or to stop (INT, TERM, HUP, XCPU).

    The caller sets `saving` to True before the first step, and `saved` to True after the last checkpoint. A stop signal
    while `saving` is False ends the process at once. Later, the first stop signal sets `received`, and the training
    saves and stops. A second stop signal ends the process at once, unless it is XCPU or comes within a second of the
    first. A process that ends at once prints a line if `may_speak(exit code)` is true, and calls `before_leaving`. If
    `saved` is False, a second signal loses the steps since the last checkpoint, and the line ends with `advice`.
    """

    before_leaving: Callable[[], object] = lambda: None
    advice: str = ""
    may_speak: Callable[[int], bool] = lambda _: True
    saving: bool = field(default=False, init=False)
    saved: bool = field(default=False, init=False)
    received: int | None = field(default=None, init=False)
    _received_at: float = field(default=0.0, init=False)
    _save_requested: bool = field(default=False, init=False)

    def save_requested(self) -> bool:
        """Return whether USR1 has asked for a checkpoint since the last call of this method."""
        requested, self._save_requested = self._save_requested, False
        return requested

    def hear(self, number: int) -> None:
        """Record signal `number`, or end the process at once, by the rules of the class docstring."""
        if number == signal.SIGUSR1:
            self._save_requested = True
            return
        hurry()
        name = signal.Signals(number).name
        if not self.saving:
            self._leave(number, f"stopped by {name} before the first step")
        elif self.received is None:
            self.received, self._received_at = number, time.monotonic()
        elif number == signal.SIGXCPU:
            pass  # beyond the limit, XCPU comes again every second of processor time
        elif time.monotonic() - self._received_at > SAME_REQUEST_SECONDS:
            again = f"ended by a second signal, {name}, without saving the last steps"
            after = f"ended by a second signal, {name}, after all was saved"
            self._leave(number, after if self.saved else again + self.advice)

    def _leave(self, number: int, line: str) -> None:
        try:
            if self.may_speak(128 + number):
                say_at_last(f"warning: {say(line)}\n")
            self.before_leaving()
        finally:
            os._exit(128 + number)


@contextmanager
def listening(signals: Signals) -> Iterator[None]:
    """Pass INT, TERM, HUP, XCPU and USR1 to `signals` in the context; ignored ones (HUP under nohup) stay ignored."""
    numbers = (*STOPS, signal.SIGUSR1)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)

    def hear() -> None:
        while number := os.read(read_end, 1):
            if number[0] in numbers:  # ignored ones do not arrive here
                signals.hear(number[0])

    thread = threading.Thread(target=hear, daemon=True)
    thread.start()
    previous_fd = signal.set_wakeup_fd(write_end)
    try:
        with handling(numbers, lambda *_: None):
            yield
    finally:
        signal.set_wakeup_fd(previous_fd)
        os.close(write_end)
        thread.join()
        os.close(read_end)
