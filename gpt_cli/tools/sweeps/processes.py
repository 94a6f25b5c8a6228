"""Train the runs of a sweep, each in a `gpt train` process of its own, and pass signals on. Needs no torch."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, NamedTuple

from gpt_cli.checkpoints.lock import is_held
from gpt_cli.checkpoints.run_list import Overview, is_run, overview
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.files import python_command
from gpt_cli.common.host import Host, uncounted
from gpt_cli.common.machine.signals import STOPS, held_back
from gpt_cli.common.units import duration
from gpt_cli.config.field_types import as_yaml
from gpt_cli.distributed.environment import LAUNCHER
from gpt_cli.distributed.failure_detector import LEAVE_WITHIN
from gpt_cli.distributed.launch import POLL_EVERY
from gpt_cli.errors import DivergedError, EnvironmentFailure, shown, visible
from gpt_cli.tools.sweeps.request import Point
from gpt_cli.tools.sweeps.sweep_file import Sweep

_STOPPED = {128 + number: number for number in STOPS}
_LAST_WORDS = 2000  # bytes

# returns a context in which signals call a function with their number and frame
Hearing = Callable[[Callable[[int, object], None]], AbstractContextManager[None]]


def train_points(
    sweep: Sweep,
    points: Sequence[Point],
    environments: Sequence[Mapping[str, str]],
    host: Host,
    hearing: Hearing,
    flags: Sequence[str] | None,
) -> Jobs:
    """Train `points` (runs) in order, as many at once as there are `environments`; return Jobs with all failed points.

    A stopped run continues from its checkpoint. Each environment has variables for one training at a time.
    `flags` end each command line; trainings write to this process's stderr. If `flags` is None, trainings are quiet,
    and `host.warn` receives the end of their stderr. In `hearing(f)`, signals call `f`, which sends them to all
    trainings. After a stop signal, no new training begins. Raises EnvironmentFailure if another process trains a point.
    """
    jobs = Jobs(environments, keeps_stderr=flags is None)
    counting = host.counting if flags is None else uncounted
    with hearing(jobs.hear), counting("training", len(points), "runs") as count:
        try:
            for number, point in enumerate(points, 1):
                while not jobs.free and jobs.received is None:
                    _report(jobs.take_ended(), host, count)
                _wait_until_left(point, jobs)
                if jobs.received is not None:
                    break
                left = ""
                if done := number - 1 - len(jobs.running):  # the other runs will take as long
                    seconds = jobs.worked / done * (len(points) - done) / len(environments)
                    left = f", about {duration(seconds)} left"
                host.notice(f"run {number} of {len(points)}{left}, {visible(point.path)}: {point}")
                jobs.start(point, training_command(sweep, point, ["--quiet"] if flags is None else flags))
            while jobs.running:
                _report(jobs.take_ended(), host, count)
        finally:
            jobs.end()
    return jobs


def training_command(sweep: Sweep, point: Point, flags: Sequence[str]) -> list[str]:
    """Return the command line of `gpt train` that begins or resumes a run (`point`); the line ends with `flags`."""
    words = ["--config", str(sweep.base), "--out", str(point.path)]
    for key, value in {**sweep.settings, **point.texts}.items():
        words += ["--set", f"{key}={as_yaml(value)}"]
    words += ["--resume"] if RunFiles(point.path).exists() else []
    return [*python_command(), "-m", "gpt_cli", "train", *words, *flags]


def _report(ended: Sequence[_Job], host: Host, count: Callable[[int], object]) -> None:
    for job in ended:
        state, loss = point_state(job.point.path), ""
        if (result := state.result) is not None:
            loss = f", validation loss {result if result.closed else f'{result.loss:.4f} (best so far)'}"
        host.notice(f"{visible(job.point.path)}: {state.state}{loss}")
        for line in job.last_words():
            host.warn(f"{visible(job.point.path)}: {line}")
        count(1)


def point_state(run: Path) -> Overview:
    """Return the overview of the run at path `run`, with the state "empty" if this run was never begun."""
    return overview(run) if is_run(run) else Overview(run, "empty")


def _wait_until_left(point: Point, jobs: Jobs) -> None:
    """Wait until no other process trains this run or a stop signal comes; EnvironmentFailure after a time limit."""
    deadline = time.monotonic() + LEAVE_WITHIN + 5
    while is_held(point.path) and jobs.received is None:
        if time.monotonic() > deadline:
            hint = "stop it, or wait for it"
            raise EnvironmentFailure(shown(point.path), "another process is training this run", hint=hint)
        time.sleep(POLL_EVERY)


class _Job(NamedTuple):
    """A training process of one run (`point`), with its environment; `stderr` is the file for its stderr, or None."""

    point: Point
    process: subprocess.Popen[bytes]
    environment: Mapping[str, str]
    stderr: IO[bytes] | None
    began: float  # by time.monotonic()

    def code(self) -> int:
        """Return the exit code as a shell reports it: 128 + n after signal n."""
        code = self.process.returncode
        return 128 - code if code < 0 else code

    def last_words(self) -> list[str]:
        """Close the file of the training's stderr, and return its last lines; return [] if there is no such file."""
        if self.stderr is None:
            return []
        with self.stderr:
            self.stderr.seek(max(0, self.stderr.tell() - _LAST_WORDS))
            return self.stderr.read().decode("utf-8", "replace").splitlines()


class Jobs:
    """State of a sweep: running trainings, environment variables for the next trainings, failed runs, stop signal."""

    def __init__(self, environments: Sequence[Mapping[str, str]], *, keeps_stderr: bool):
        self.free, self.running, self._keeps_stderr = list(environments), list[_Job](), keeps_stderr
        self.failed: list[tuple[Point, int]] = []  # with exit codes
        self.received: int | None = None
        self.worked = 0.0  # seconds that all ended trainings took together

    def hear(self, number: int, _: object) -> None:
        """Pass a signal on to all running trainings; remember the first signal that asks the sweep to stop."""
        if number != signal.SIGUSR1:
            self.received = self.received or number
        for job in self.running:
            job.process.send_signal(number)  # does nothing for a process that has ended

    def start(self, point: Point, words: Sequence[str]) -> None:
        """Train a run (`point`) by command line `words`, in a process that ends when the sweep's process is gone."""
        environment = self.free.pop(0)
        variables = {**os.environ, **environment, LAUNCHER: str(os.getpid())}
        stderr = tempfile.TemporaryFile() if self._keeps_stderr else None  # noqa: SIM115 - closed when it has been read
        nothing = subprocess.DEVNULL
        with held_back(signal.SIGUSR1):
            process = subprocess.Popen(words, stdin=nothing, stdout=nothing, stderr=stderr, env=variables)
        self.running.append(_Job(point, process, environment, stderr, time.monotonic()))
        if self.received is not None:  # while it was being started
            process.send_signal(self.received)

    def take_ended(self) -> list[_Job]:
        """Wait a moment, and return the trainings that have ended; if a signal stopped one, stop all others too."""
        time.sleep(POLL_EVERY)
        ended = [job for job in self.running if job.process.poll() is not None]
        self.running = [job for job in self.running if job not in ended]
        self.free += [job.environment for job in ended]
        self.worked += sum(time.monotonic() - job.began for job in ended)
        for job in ended:
            if job.code() in _STOPPED and self.received is None:  # the user has signalled only this training
                self.hear(_STOPPED[job.code()], None)
            elif job.code() not in (0, DivergedError.exit_code, *_STOPPED):
                self.failed.append((job.point, job.code()))
        return ended

    def end(self) -> None:
        """Stop all trainings that still run; kill those that take longer than LEAVE_WITHIN seconds to end."""
        for job in self.running:
            job.process.terminate()
        for job in self.running:
            try:
                job.process.wait(LEAVE_WITHIN)
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()
