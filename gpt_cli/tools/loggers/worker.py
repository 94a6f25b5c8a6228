"""The process of one logger: it hands the metrics of a run to the package, until the training ends.

`following` starts it. Its stdin closes when the training ends, even by `kill -9`; its stdout says why it failed.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import select
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.files import append, make_directory
from gpt_cli.tools.loggers.adapters import Destination, open_logger
from gpt_cli.tools.loggers.tail import LogReader

LOOK_EVERY = 1.0  # seconds
NICENESS = 10  # the training comes first where cores are scarce


def main() -> None:
    """Follow a run for a logger: its name, the run directory, and the seconds that a call may take."""
    name, path, seconds = sys.argv[1:]
    ended, failures = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # packages ask, and print
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
    """Hand all metrics of `run` to a logger, each step once, until `ended`, which waits, returns true.

    The process ends by SIGALRM when a call takes longer than the limit.
    """

    def allow_time() -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    allow_time()
    folder = run.sent(name).parent
    make_directory(folder)
    # what an earlier training has started may still be at work here; the lock lasts as long as the process
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)
    os.chdir(folder)
    sent = SentLog.read(run.sent(name))
    config: dict[str, Any] = yaml.safe_load(run.config.read_text(encoding="utf-8"))
    logger = open_logger(name, Destination(folder, sent.run, run.path.name, continued=sent.step > 0), config)
    reader, over = LogReader(run, sent.step), False
    while not over:
        over = ended()
        allow_time()
        for step, entry in reader.read_new(over=over):
            allow_time()
            logger.log(step, entry.figures, entry.sample)
            sent.add(step)
    allow_time()  # what packages do when Python ends is included
    logger.close()


@dataclass
class SentLog:
    """Log of what a logger has received: the last line of a file has the name of its run and the last step."""

    path: Path
    run: str
    step: int

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file; a new name where there is none."""
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        said = [values for values in map(_values_of, lines) if {"run", "step"} <= set(values)]
        if said:
            return cls(path, said[-1]["run"], said[-1]["step"])
        sent = cls(path, secrets.token_hex(8), 0)
        sent.add(0)
        return sent

    def add(self, step: int) -> None:
        """Take note of a step that the logger has taken."""
        self.step = step
        append(self.path, json.dumps({"run": self.run, "step": step}) + "\n")


def _values_of(line: bytes) -> dict[str, Any]:
    """Parse a line of JSON; nothing where it is damaged."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
