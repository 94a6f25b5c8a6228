"""Trains the points of a sweep, each by a `gpt train` of its own, and passes signals on to them. Needs no torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gpt_cli.checkpoints.list import Overview, is_run, overview
from gpt_cli.checkpoints.lock import is_held
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.cli.terminal import Console, hurry
from gpt_cli.config.sweeps import Sweep
from gpt_cli.errors import DivergedError, EnvironmentFailure, shown, visible
from gpt_cli.machine.signals import STOPS
from gpt_cli.ranks.launch import POLL_EVERY, hearing, own_python
from gpt_cli.ranks.place import LAUNCHER
from gpt_cli.ranks.watching import LEAVE_WITHIN

_STOPPED = {128 + number: number for number in STOPS}


class Point(NamedTuple):
    """A run of a sweep, and the settings that it tries."""

    path: Path
    settings: Mapping[str, Any]


@dataclass
class Ended:
    """How the points of a sweep ended: the signal that stopped it, and those that failed with their exit codes."""

    signal: int | None = None
    failed: list[tuple[Point, int]] = field(default_factory=list)


def train_points(
    sweep: Sweep,
    points: Sequence[Point],
    max_time: str | None,
    environments: Sequence[Mapping[str, str]],
    console: Console,
) -> Ended:
    """Train points in order, as many at once as there are environments; each continues where it was stopped.

    After a signal, which the trainings receive too, no further one begins. Raises EnvironmentFailure for a point that
    another process trains.
    """
    jobs = _Jobs(environments)
    with hearing(jobs.hear):
        try:
            for number, point in enumerate(points, 1):
                while not jobs.free and jobs.received is None:
                    _report(jobs.take_ended(), console)
                _wait_until_left(point, jobs)
                if jobs.received is not None:
                    break
                values = " ".join(f"{key}={visible(written(value))}" for key, value in point.settings.items())
                console.notice(f"run {number} of {len(points)}, {visible(point.path)}: {values}")
                quiet = console.quiet or len(environments) > 1
                jobs.start(point, command(sweep, point, max_time, quiet=quiet))
            while jobs.running:
                _report(jobs.take_ended(), console)
        finally:
            jobs.end()
    return Ended(jobs.received, jobs.failed)


def command(sweep: Sweep, point: Point, max_time: str | None, *, quiet: bool) -> list[str]:
    """The words of the `gpt train` that begins or continues a point."""
    words = ["--config", str(sweep.base), "--out", str(point.path)]
    for key, value in sweep.changed(point.settings).items():
        words += ["--set", f"{key}={written(value)}"]
    words += [] if max_time is None else ["--max-time", max_time]
    words += ["--resume"] if RunFiles(point.path).exists() else []
    return [*own_python(), "-m", "gpt_cli", "train", *words, *(["--quiet"] if quiet else [])]


def written(value: Any) -> str:
    """A value as `--set` takes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _report(ended: Sequence[tuple[Point, int]], console: Console) -> None:
    for point, _ in ended:
        found = look(point.path)
        loss = ""
        if (result := found.result) is not None:
            loss = (
                f", validation loss {result}" if result.closed else f", validation loss {result.loss:.4f} (best so far)"
            )
        console.notice(f"{visible(point.path)}: {found.state}{loss}")


def look(run: Path) -> Overview:
    """What a point is; one that was never begun is empty."""
    return overview(run) if is_run(run) else Overview(run, "empty")


def _wait_until_left(point: Point, jobs: _Jobs) -> None:
    """Wait for a training that a killed sweep has left, which saves and ends by itself."""
    deadline = time.monotonic() + LEAVE_WITHIN + 5
    while is_held(point.path) and jobs.received is None:
        if time.monotonic() > deadline:
            hint = "stop it, or wait for it"
            raise EnvironmentFailure(shown(point.path), "another process is training this run", hint=hint)
        time.sleep(POLL_EVERY)


class _Jobs:
    """The trainings that run now, each in one of the environments."""

    def __init__(self, environments: Sequence[Mapping[str, str]]):
        self.free = list(environments)
        self.running: list[tuple[Point, subprocess.Popen[bytes], Mapping[str, str]]] = []
        self.failed: list[tuple[Point, int]] = []
        self.received: int | None = None

    def hear(self, number: int, _: object) -> None:
        """Pass a signal on to all; one that stops is remembered."""
        if number != signal.SIGUSR1:
            hurry()
            self.received = self.received or number
        for _, process, _ in self.running:
            process.send_signal(number)  # does nothing for one that has ended

    def start(self, point: Point, words: Sequence[str]) -> None:
        """Start the training of a point; its result is read from its directory. It ends when this process is gone."""
        environment = self.free.pop(0)
        variables = {**os.environ, **environment, LAUNCHER: str(os.getpid())}
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=variables)
        self.running.append((point, process, environment))
        if self.received is not None:  # while it was being started
            process.send_signal(self.received)

    def take_ended(self) -> list[tuple[Point, int]]:
        """Those that have ended by now, with their exit codes, after a moment; a stop by a signal stops the others."""
        time.sleep(POLL_EVERY)
        ended = [job for job in self.running if job[1].poll() is not None]
        self.running = [job for job in self.running if job not in ended]
        self.free += [environment for _, _, environment in ended]
        codes = [(point, _as_shell(process.returncode)) for point, process, _ in ended]
        for point, code in codes:
            if code in _STOPPED and self.received is None:  # the user has signalled the training alone
                self.hear(_STOPPED[code], None)
            elif code not in (0, DivergedError.exit_code, *_STOPPED):
                self.failed.append((point, code))
        return codes

    def end(self) -> None:
        """Stop what still runs."""
        for _, process, _ in self.running:
            process.terminate()
        for _, process, _ in self.running:
            try:
                process.wait(LEAVE_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _as_shell(code: int) -> int:
    """The exit code of a process as a shell reports it."""
    return 128 - code if code < 0 else code
