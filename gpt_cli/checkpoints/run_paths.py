"""The paths of the files of a run directory; `run_directory.py` writes the files. Needs no torch."""

import contextlib
import errno
import os
import re
import shlex
from pathlib import Path
from typing import Literal

from gpt_cli.common.file_signatures import LOCK, holds_run, is_ours
from gpt_cli.common.files import temporaries
from gpt_cli.common.machine.failures import reason
from gpt_cli.errors import EnvironmentFailure, UsageError, shown, visible

RUNS = Path("runs")
# of a run: training, stopped by a signal or killed, finished by itself, diverged, imported and never trained, empty
# before its first checkpoint, damaged
State = Literal["training", "stopped", "finished", "diverged", "imported", "empty", "damaged"]
# files in the directory of a sweep: its record, and a page of the curves of its runs
SWEEP, SWEEP_PAGE = "sweep.json", "report.html"
_RUN_FILES = re.compile(
    r"step-\d{8,}\.safetensors|best\.safetensors|metrics\.jsonl|samples\.txt|outcome\.json|loss\.png|config\.yaml|probe"
)
_STEP_FILE = re.compile(r"step-(\d{8,})\.safetensors")


class RunFiles:
    """The paths of the files of one run; no method changes a file."""

    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.yaml"
        self.checkpoints = path / "checkpoints"
        self.metrics = path / "metrics.jsonl"
        self.samples = path / "samples.txt"
        self.attention = path / "attention"
        self.lens = path / "lens"
        self.logs = path / "logs"  # the directories of the loggers of `train.log_to`
        # how the run ended, and its curves; both files are missing while the run trains, and after it was killed
        self.outcome = path / "outcome.json"
        self.loss_picture = path / "loss.png"
        self.best = self.checkpoints / "best.safetensors"
        # gpt train renames a best.safetensors of another run to this path; the run does not use it
        self.foreign_best = self.checkpoints / "best-of-another-run.safetensors"

    def sent(self, logger: str) -> Path:
        """Return the path of the file that records which lines the logger named `logger` has already received."""
        return self.logs / logger / "sent.jsonl"

    def logger_folders(self) -> list[Path]:
        """Return the directories of the run's loggers: those below `logs` with a sent.jsonl that gpt wrote."""
        return sorted(sent.parent for sent in self.logs.glob("*/sent.jsonl") if is_ours(sent))

    @property
    def resume_command(self) -> str:
        """The shell command that resumes the run."""
        return f"gpt train --out {shlex.quote(str(self.path))} --resume"

    def intact(self) -> tuple[str, str | None]:
        """Return a clause on the newest checkpoint, for errors, and a hint on how to resume the run (None: no run)."""
        steps = list(self.steps())
        clause = f"the newest checkpoint is of step {steps[-1]:,}" if steps else self.without_checkpoints
        return clause, f"continue with {self.resume_command}" if self.exists() else None

    @property
    def without_checkpoints(self) -> str:
        """The clause of an error on what a training has saved before its first checkpoint."""
        return "only the best weights so far are saved" if self.best.exists() else "nothing was saved yet"

    def exists(self) -> bool:
        """Return whether the directory is a run: it has checkpoints/ and a config or checkpoint that gpt wrote."""
        return holds_run(self.path)

    def files(self) -> list[Path]:
        """Return the existing files at the paths of run files, such as checkpoints, even if gpt did not write them."""
        by_step = (path for paths in (self.steps(), self.snapshots(), self.maps()) for path in paths.values())
        single = (self.best, self.metrics, self.samples, self.outcome, self.loss_picture, self.config)
        return [path for path in (*self.logs.glob("*/sent.jsonl"), *by_step, *single) if path.exists()]

    def foreign(self) -> list[Path]:
        """Return the paths of `files()` that gpt did not write, or all of them if the directory contains no run.

        Raises EnvironmentFailure if the user may not read a file of a run.
        """
        if not self.exists():
            return self.files()
        foreign = [path for path in self.files() if not is_ours(path)]
        for path in foreign:
            if not os.access(path, os.R_OK):
                raise EnvironmentFailure(f"reading {shown(path)}", reason(PermissionError(errno.EACCES, "")))
        return foreign

    def temporaries(self) -> list[Path]:
        """Return the temporary files that killed processes left."""
        return [path for directory in self.directories() for path in temporaries(directory, _RUN_FILES)]

    def directories(self) -> list[Path]:
        """Return the existing directories with files of the run."""
        return [path for path in (self.path, self.checkpoints, self.attention, self.lens, self.logs) if path.is_dir()]

    def steps(self) -> dict[int, Path]:
        """Return the path of each checkpoint by its step, lowest step first; ignore files with other names."""
        return _by_step(self.checkpoints)

    def step_file(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:08}.safetensors"

    def snapshots(self) -> dict[int, Path]:
        """Return the path of each attention snapshot by its step, lowest first; ignore files with other names."""
        return _by_step(self.attention)

    def snapshot_file(self, step: int) -> Path:
        return self.attention / self.step_file(step).name

    def maps(self) -> dict[int, Path]:
        """Return the path of each tuned-lens file by its step, lowest first; ignore files with other names."""
        return _by_step(self.lens)

    def maps_file(self, step: int) -> Path:
        return self.lens / self.step_file(step).name

    def owns(self, path: Path) -> bool:
        """Return whether `path` has the folder and name of a file of this run, even if no such file exists."""
        folders = (self.path, self.checkpoints, self.attention, self.lens)
        return path.parent in folders and (path.name == LOCK or _RUN_FILES.fullmatch(path.name) is not None)


def foreign_file(run: Path, name: str | Path) -> UsageError:
    """Return the error for a file that gpt did not write and that a training would replace."""
    wrong = f"it contains {visible(name)}, which no run wrote; move it elsewhere, or name another directory with ‹out›"
    return UsageError(shown(run), wrong)


def named_run(name: str | Path) -> Path:
    """Return the path that the user means by `name`: runs/NAME, or NAME itself.

    NAME itself wins if it begins with . / or ~, if it is a file, a run or a folder of runs, or if runs/NAME is missing.
    """
    path = Path(os.path.expanduser(name))
    if str(name)[:1] in (".", "/", "~") or not os.path.lexists(below := RUNS / path):
        return path
    if not os.path.isdir(path):
        return path if os.path.lexists(path) else below
    with contextlib.suppress(OSError):
        if holds_run(path) or any(map(holds_run, path.iterdir())):
            return path
    return below


def short_run_name(run: Path) -> str:
    """Return a run's path relative to runs/, which `named_run` accepts as a name; outside runs/, the whole path."""
    with contextlib.suppress(ValueError):
        if (name := str((run.parent.resolve() / run.name).relative_to(RUNS.resolve()))) != ".":
            return name
    return str(run) if run.name else run.resolve().name  # of "." too


def run_of_checkpoint(path: Path) -> RunFiles | None:
    """Return the run that contains the checkpoint `path`, or None if it is outside a run.

    Only the path decides; links are not followed, because a stranger may have made them.
    """
    for name in (path, Path(os.path.abspath(path))):
        run = RunFiles(name.parent.parent)
        if name.parent == run.checkpoints:
            return run
    return None


def run_name(checkpoint: Path) -> str:
    """Return the name of a checkpoint in messages: the path of its run, or of the file itself outside a run."""
    run = run_of_checkpoint(checkpoint)
    return visible(checkpoint if run is None else run.path)


def _by_step(directory: Path) -> dict[int, Path]:
    if not directory.is_dir():
        return {}
    matches = ((_STEP_FILE.fullmatch(path.name), path) for path in directory.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in matches if match))
