"""A run directory: its files, its checkpoints, and which of them is meant."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint, save_checkpoint
from gpt_cli.config import Config
from gpt_cli.config.reading import write_config
from gpt_cli.errors import CheckpointError, DataError, UsageError, shown
from gpt_cli.files import make_directory, read_bytes, write_durably, write_failure
from gpt_cli.model import GPT
from gpt_cli.text.tokenizer import Tokenizer

RUNS = Path("runs")
_STEP_FILE = re.compile(r"step-(\d{8,})\.safetensors")
_SAMPLE_MARK = re.compile(r"^=== step (\d+) ===$", re.MULTILINE)


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run; nothing is touched before a method is called."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        return self.checkpoints / "best.safetensors"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def samples(self) -> Path:
        return self.path / "samples.txt"

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self.config.is_file() and self.checkpoints.is_dir()

    def files(self) -> list[Path]:
        """The files with the names of a run's own that are there; in a directory that is no run, someone else's."""
        own = (*self.steps().values(), self.best, self.metrics, self.samples, self.config)
        return [path for path in own if path.exists()]

    def steps(self) -> dict[int, Path]:
        """The checkpoints by step, oldest first; files with other names are not ours."""
        if not self.checkpoints.is_dir():
            return {}
        found = ((_STEP_FILE.fullmatch(path.name), path) for path in self.checkpoints.iterdir())
        return dict(sorted((int(match[1]), path) for match, path in found if match))

    def step_file(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:08}.safetensors"

    def begin(self, config: Config) -> None:
        """Make the directory with its resolved config; raises EnvironmentFailure when the system refuses."""
        make_directory(self.checkpoints)
        write_durably(self.config, [write_config(config).encode()])

    def clear(self) -> None:
        """Remove what an earlier run left here, and nothing that is not a run's own."""
        for path in self.files():
            path.unlink()

    def newest(self, warn: Callable[[str], object]) -> Checkpoint | None:
        """The newest checkpoint that verifies, for resuming; damaged newer ones are told to `warn`.

        Raises CheckpointError when there are checkpoints and none verifies, or none that can be continued.
        """
        damaged: CheckpointError | None = None
        for _, path in sorted(self.steps().items(), reverse=True):
            try:
                return read_checkpoint(path, everything=True)
            except CheckpointError as error:
                damaged = error
                warn(f"{error}; trying the one before")
        if damaged:
            raise damaged
        if self.best.exists():
            wrong = "has no checkpoint of a step, and best.safetensors holds no optimizer state to continue from"
            raise CheckpointError(shown(self.path), wrong, hint="replace the run with --overwrite")
        return None

    def save(self, checkpoint: Checkpoint, keep: int) -> None:
        """Save a checkpoint of a step, then remove the oldest beyond the newest `keep`.

        Files of later steps are not counted: a resumed run may have passed over damaged ones.
        """
        saved = checkpoint.progress.step
        save_checkpoint(self.step_file(saved), checkpoint)
        for path in [path for step, path in self.steps().items() if step <= saved][:-keep]:
            path.unlink(missing_ok=True)

    def append(self, path: Path, text: str) -> None:
        """Add text to metrics or samples; raises EnvironmentFailure when the system refuses."""
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise write_failure(path, error) from error

    def rewind(self, step: int) -> None:
        """Drop what was written after `step`: lines of metrics and samples, a line cut off, a later or damaged best."""
        if self.best.exists():
            try:
                later = read_checkpoint(self.best).progress.step > step
            except CheckpointError:
                later = True
            if later:
                self.best.unlink()
        if self.metrics.exists():
            lines = read_bytes(self.metrics, DataError).decode("utf-8", "replace").split("\n")
            kept = [line for line in lines if 0 < _step_of(line) <= step]
            write_durably(self.metrics, ["".join(line + "\n" for line in kept).encode()])
        if self.samples.exists():
            text = read_bytes(self.samples, DataError).decode("utf-8", "replace")
            ends = (mark.start() for mark in _SAMPLE_MARK.finditer(text) if int(mark[1]) > step)
            write_durably(self.samples, [text[: next(ends, len(text))].encode()])


def _step_of(line: str) -> int:
    """The step of a metrics line; 0 for one that was cut off."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return 0


def find_checkpoint(path: str | Path | None, checkpoint: str = "best") -> Path:
    """The checkpoint file that a run directory or file and `best`, `last` or a step mean.

    None takes the newest run under runs/. Without a best one the last is taken. Raises CheckpointError.
    """
    run = newest_run() if path is None else Path(path)
    if os.path.isfile(run):  # false, not an error, for a name that is too long
        return run
    if not os.path.isdir(run):
        raise CheckpointError(shown(run), "no such run or checkpoint", hint=_runs_hint())
    directory = RunDirectory(run)
    steps = directory.steps()
    if checkpoint == "best" and directory.best.exists():
        return directory.best
    if checkpoint in ("best", "last"):
        if not steps:
            raise CheckpointError(shown(run), "has no checkpoint", hint=_runs_hint())
        return steps[max(steps)]
    if not checkpoint.isdecimal() or len(checkpoint) > 12:
        raise UsageError("--checkpoint", f"{shown(checkpoint)} is not allowed", "use best | last | a step")
    if int(checkpoint) not in steps:
        known = ", ".join(map(str, steps)) or "none"
        raise CheckpointError(shown(run), f"has no checkpoint of step {checkpoint}", f"its steps are {known}")
    return steps[int(checkpoint)]


def newest_run() -> Path:
    """The run under runs/ that was written to last; raises CheckpointError when there is none."""
    candidates = [RunDirectory(path) for path in RUNS.iterdir()] if RUNS.is_dir() else []
    runs = [run for run in candidates if run.best.exists() or run.steps()]
    if not runs:
        raise CheckpointError("runs/", "no trained model there", hint="gpt train --config tiny, or name one with --run")
    return max(runs, key=lambda run: run.checkpoints.stat().st_mtime_ns).path


def _runs_hint() -> str:
    names = [str(path) for path in sorted(RUNS.iterdir())] if RUNS.is_dir() else []
    return f"runs here: {', '.join(names[:10])}" if names else "train one with gpt train --config tiny"


@dataclass(frozen=True)
class Loaded:
    """A trained model with all that is needed to use it."""

    model: GPT
    tokenizer: Tokenizer
    config: Config
    step: int
    path: Path


def load(path: str | Path | None = None, checkpoint: str = "best") -> Loaded:
    """See `gpt_cli.load`."""
    file = find_checkpoint(path, checkpoint)
    stored = read_checkpoint(file)
    return Loaded(stored.build_model(), stored.tokenizer, stored.config, stored.progress.step, file)
