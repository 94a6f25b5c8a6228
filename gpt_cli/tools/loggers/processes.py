"""The loggers of a training, each in a process of its own that reads the files that the run writes.

A logging package may hang, fail, print, catch signals, or wait when Python ends. In a process of its own, none of that
reaches the training, which only starts the process, checks if it has ended, and at last waits a while for its end.
Metrics that a logger has not read yet are in the files of the run, so no queue grows in memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.host import Notify
from gpt_cli.common.machine.failures import reason
from gpt_cli.errors import visible

# seconds
CALL_SECONDS = 60.0  # that a call of a package may take; then its process ends
FINISH_SECONDS = 30.0  # that all loggers together have once the training has ended
PATIENCE = 2.0  # after which the user hears what is waited for
_POLL_EVERY = 0.02

# with the modules of this process, and none from the working directory
_BEGIN = "import sys; sys.path[:] = sys.argv.pop(1).split(':'); from gpt_cli.tools.loggers.worker import main; main()"


class Followers(AbstractContextManager["Followers"]):
    """Processes of a run's loggers; a logger that fails is dropped, and `warn` receives a line about the failure."""

    def __init__(self, names: Sequence[str], run: RunFiles, *, notice: Notify, warn: Notify):
        self._run, self._notice, self._warn = run, notice, warn
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        modules = ":".join(map(os.path.abspath, sys.path))
        for name in names:
            command = [sys.executable, "-P", "-c", _BEGIN, modules, name, str(run.path.absolute()), str(CALL_SECONDS)]
            try:
                self._running[name] = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,  # which closes when this process ends, however it ends
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is for the training
                )
            except OSError as error:
                self._leave_out(name, reason(error))

    def remark(self) -> None:
        """Warn of loggers whose process has ended early, and drop them."""
        for name, process in list(self._running.items()):
            if process.poll() is not None:
                with self._running.pop(name):  # which closes its pipes
                    self._leave_out(name, _last_words(process))

    def __exit__(self, *_: object) -> None:
        """Let all loggers read the rest of the files and end; kill, with a warning, any slower than FINISH_SECONDS."""
        began, noticed = time.monotonic(), False
        for process in self._running.values():
            assert process.stdin is not None
            process.stdin.close()
        while (waited := time.monotonic() - began) < FINISH_SECONDS:
            if not (late := [name for name, process in self._running.items() if process.poll() is None]):
                break
            if waited > PATIENCE and not noticed:
                self._notice(f"waiting for {', '.join(late)} to finish, {FINISH_SECONDS:g} s at most")
                noticed = True
            time.sleep(_POLL_EVERY)
        for name, process in self._running.items():
            with process:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    self._leave_out(name, f"it did not finish within {FINISH_SECONDS:g} s")
                elif process.returncode:
                    self._leave_out(name, _last_words(process))

    def _leave_out(self, name: str, why: str) -> None:
        self._warn(f"train.log_to: {name} is left out: {why}; metrics.jsonl has everything")


def _last_words(process: subprocess.Popen[bytes]) -> str:
    """Return why a process has ended: the text that it printed, or its exit code."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    os.set_blocking(descriptor, False)  # a process of the package may still hold the other end
    try:
        said = os.read(descriptor, 2000).decode(errors="replace").strip()
    except BlockingIOError:
        said = ""
    if process.returncode == -signal.SIGALRM:
        return f"it did not answer for {CALL_SECONDS:g} s"
    return visible(said) or f"its process ended with code {process.returncode}"
