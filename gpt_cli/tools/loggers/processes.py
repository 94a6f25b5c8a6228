"""Run the loggers of a training, each in a separate process that reads the files of the run.

A logging package may hang, fail, print, catch signals, or wait when Python ends; none of that reaches the training. The
training uses `Followers`; `main` runs the process of one logger, whose stdin closes when the training ends, even by
`kill -9`, and whose stdout reports why it failed.
"""

import contextlib
import fcntl
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from gpt_cli.checkpoints.metrics_files import numbers_of_line, read_log, samples_of
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.files import append, make_directory
from gpt_cli.common.host import Notify
from gpt_cli.common.machine.failures import reason
from gpt_cli.errors import CheckpointError, visible
from gpt_cli.tools.loggers.adapters import LOGGERS, Destination

# seconds
CALL_SECONDS = 60.0  # that a call of a package may take; then its process ends
FINISH_SECONDS = 30.0  # that all loggers together have once the training has ended
PATIENCE = 2.0  # after which the user learns which loggers still run
LOOK_EVERY = 1.0  # between looks of a logger at the files
_POLL_EVERY = 0.02

NICENESS = 10  # of a logger: the training comes first where cores are scarce

# with the modules of this process, and none from the working directory
_BEGIN = (
    "import sys; sys.path[:] = sys.argv.pop(1).split(':'); from gpt_cli.tools.loggers.processes import main; main()"
)


class Followers(contextlib.AbstractContextManager["Followers"]):
    """Context manager that runs a process for each logger of a run; a logger that fails is dropped, with a warning."""

    def __init__(self, names: Sequence[str], run: RunFiles, *, notice: Notify, warn: Notify):
        self._notice, self._warn = notice, warn
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
    os.set_blocking(process.stdout.fileno(), False)  # a process of the package may still hold the other end
    said = (process.stdout.read(2000) or b"").decode(errors="replace").strip()
    if process.returncode == -signal.SIGALRM:
        return f"it did not answer for {CALL_SECONDS:g} s"
    return visible(said) or f"its process ended with code {process.returncode}"


def main() -> None:
    """Run the process of a logger; sys.argv has the logger, the run directory and the seconds for each call."""
    name, path, seconds = sys.argv[1:]
    ended, failures = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # packages read stdin and print
        os.dup2(nowhere, stream)
    os.nice(NICENESS)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # Slurm sends them to every process of a job; the training answers them
    try:
        follow(name, RunFiles(Path(path)), float(seconds), lambda: bool(select.select([ended], [], [], LOOK_EVERY)[0]))
    except Exception as error:
        lines = str(error).strip().splitlines() or ["it gave no reason"]
        os.write(failures, f"{type(error).__name__}: {lines[0]}\n".encode())
        sys.exit(1)


def follow(name: str, run: RunFiles, seconds: float, ended: Callable[[], bool]) -> None:
    """Pass the metrics and samples of `run`, each step once, to the logger `name` until the training ends.

    `ended` waits, then returns whether the training is over. SIGALRM ends this process if a call hangs for `seconds`.
    """
    allow_time = partial(signal.setitimer, signal.ITIMER_REAL, seconds)
    allow_time()
    folder = run.sent(name).parent
    make_directory(folder)
    # the logger of an earlier training may still write here; the lock lasts as long as the process
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)
    os.chdir(folder)
    sent = SentLog(run.sent(name))
    config: dict[str, Any] = yaml.safe_load(run.config.read_text(encoding="utf-8"))
    logger = LOGGERS[name](Destination(folder, sent.run, run.path.name, continued=sent.step > 0), config)
    reader, over = LogReader(run, sent.step), False
    while not over:
        over = ended()
        allow_time()
        for step, figures, sample in reader.read_new(over=over):
            allow_time()
            logger.log(step, figures, sample)
            sent.add(step)
    allow_time()  # also for what packages do when Python exits
    logger.close()


class LogReader:
    """Reader of the metrics and samples of a run in training; returns each step after `step` once, in order."""

    def __init__(self, run: RunFiles, step: int):
        self._run, self._returned = run, step
        self._figures: dict[int, dict[str, int | float]] = {}  # of steps that wait
        self._samples: dict[int, str] = {}
        self._read = 0  # bytes of metrics
        self._samples_seen: tuple[int, int] | None = None

    def read_new(self, *, over: bool) -> Iterator[tuple[int, dict[str, int | float], str | None]]:
        """Yield (step, metrics, sample or None) for each new complete step; if training is `over`, for every step left.

        During training, a step is complete one call after its metrics are read, since the sample is written later.
        """
        settled = max(self._figures, default=0)
        self._read_lines()
        self._read_samples()
        for step in sorted(self._figures.keys() | self._samples.keys()):
            if over or step <= settled:
                self._returned = step
                yield step, self._figures.pop(step, {}), self._samples.pop(step, None)

    def _read_lines(self) -> None:
        if not self._run.metrics.exists():
            return
        with self._run.metrics.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):  # it is being written
                    break
                self._read += len(line)
                figures = numbers_of_line(line.decode("utf-8", "replace"))
                step = int(figures.pop("step", 0))
                if step > self._returned:
                    self._figures[step] = figures

    def _read_samples(self) -> None:
        if not self._run.samples.exists():
            return
        status = self._run.samples.stat()
        if (seen := (status.st_mtime_ns, status.st_size)) == self._samples_seen:
            return
        self._samples_seen = seen
        for step, text in samples_of(read_log(self._run.samples, CheckpointError)):
            if step > self._returned:
                self._samples[step] = text


class SentLog:
    """File with the progress of a logger: `run` is the run's id in the logger, `step` the last step received."""

    def __init__(self, path: Path):
        self._path = path
        self.run, self.step = "", 0
        for line in path.read_bytes().split(b"\n") if path.exists() else []:
            with contextlib.suppress(KeyError, RecursionError, TypeError, ValueError):  # of a damaged line
                values = json.loads(line)
                self.run, self.step = values["run"], values["step"]
        if not self.run:
            self.run = secrets.token_hex(8)
            self.add(0)

    def add(self, step: int) -> None:
        """Record a step that the logger has received."""
        self.step = step
        append(self._path, json.dumps({"run": self.run, "step": step}) + "\n")
