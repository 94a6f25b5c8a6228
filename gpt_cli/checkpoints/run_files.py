"""Which files a run directory has; `run_directory` writes them. Needs no torch."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_STEP_FILE = re.compile(r"step-(\d{8,})\.safetensors")


@dataclass(frozen=True)
class RunFiles:
    """The names of one run's files; nothing on disk changes."""

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

    @property
    def resume_command(self) -> str:
        """What to type to continue."""
        return f"gpt train --out {shlex.quote(str(self.path))} --resume"

    def intact(self) -> tuple[str, str | None]:
        """Which checkpoint a training leaves that was ended, as a clause, and how to go on."""
        steps = list(self.steps())
        clause = f"the checkpoint of step {steps[-1]} is intact" if steps else "nothing was saved yet"
        return clause, f"continue with {self.resume_command}" if self.exists() else None

    def exists(self) -> bool:
        """Whether the directory holds a run."""
        return self.config.is_file() and self.checkpoints.is_dir()

    def files(self) -> list[Path]:
        """The existing files with the names of a run's own; in a directory that holds no run, someone else's."""
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

    def is_step_file(self, path: Path) -> bool:
        """Whether a path is the one that a checkpoint of some step has or would have."""
        return path.parent == self.checkpoints and _STEP_FILE.fullmatch(path.name) is not None
