"""Find runs and summarise each one, without reading weights or all metrics. Needs no torch."""

import hashlib
import math
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gpt_cli.checkpoints.header import Header, read_header
from gpt_cli.checkpoints.lock import is_held
from gpt_cli.checkpoints.metrics_files import last_metrics
from gpt_cli.checkpoints.run_paths import SWEEP, RunFiles, foreign_file
from gpt_cli.common.file_signatures import LOCK, holds_run, is_config, is_lock
from gpt_cli.common.limits import OUTCOME_BYTES
from gpt_cli.common.machine.failures import reason
from gpt_cli.common.strict_json import figure, step_number, strict_json
from gpt_cli.common.units import with_error
from gpt_cli.common.untrusted_files import read_bytes
from gpt_cli.config import Config
from gpt_cli.config.load import Likeness, likeness, read_run_config
from gpt_cli.errors import CheckpointError, GptError, UsageError, shown, visible

_ENDS = {"steps": "finished", "time": "finished", "patience": "finished", "signal": "stopped", "diverged": "diverged"}
_of_model = re.compile(r"model\.(?!dropout)|tokenizer\.").match
_MOST = ("an outcome of a run", OUTCOME_BYTES)


class RunLoss(NamedTuple):
    """The validation loss by which runs are compared: that of the evaluation after training, else the lowest so far."""

    loss: float  # nats per token
    error: float | None  # the standard error of a closing loss
    bits_per_byte: float | None
    closed: bool

    def __str__(self) -> str:
        return with_error(self.loss, self.error) if self.closed else f"best {self.loss:.4f}"


@dataclass(frozen=True)
class Overview:
    """The summary of a run in a list; a value that the run's files lack is None."""

    path: Path
    state: str  # one of run_paths.State
    steps: int | None = None
    best_loss: float | None = None  # lowest validation loss while training, nats per token
    validation_loss: float | None = None  # of the closing evaluation, nats per token
    num_parameters: int | None = None
    num_bytes: int = 0  # of the run's own files
    changed_at: float | None = None  # seconds since 1970: the last write
    config: Config | None = None
    outcome: Mapping[str, Any] = field(default_factory=dict)  # what outcome.json holds
    problem: str | None = None  # what is wrong with a damaged run
    bits_per_byte: float | None = None  # of the closing evaluation, else of the best one
    tokenizer: str | None = None  # a digest of the tokenizer

    @property
    def result(self) -> RunLoss | None:
        """The validation loss by which runs are compared; None before the first evaluation."""
        if self.validation_loss is not None:
            error = figure(self.outcome.get("validation_loss_error"))
            return RunLoss(self.validation_loss, error, self.bits_per_byte, closed=True)
        return None if self.best_loss is None else RunLoss(self.best_loss, None, self.bits_per_byte, closed=False)


def have_one_tokenizer(runs: Iterable[Overview]) -> bool:
    """Return whether the runs with a loss share one tokenizer, as far as known, so that nats/token are comparable."""
    return len({run.tokenizer for run in runs if run.result is not None and run.tokenizer is not None}) < 2


def likeness_of(run: Overview) -> Likeness | None:
    """Return how a run's config differs from the shipped config of the run's name, or else from the most similar one.

    For an imported run, compares only settings of model and tokenizer. Returns None for a run without a config.
    """
    if run.config is None:
        return None
    alike = likeness(run.config, run.path.name)
    if run.state != "imported":
        return alike
    return alike._replace(settings={key: new for key, new in alike.settings.items() if _of_model(key)})


def is_run(directory: Path) -> bool:
    """Return whether a directory is a run, or has the lock file of a training that has not written its files yet.

    Returns False for a directory that the user may not enter.
    """
    with suppress(OSError):
        return holds_run(directory) or (is_lock(directory / LOCK) and not (directory / SWEEP).exists())
    return False


def find_runs(directory: Path) -> list[Path]:
    """Return [directory] if it is a run, else `runs_below(directory)`; raise OSError if it cannot be read."""
    return [directory] if is_run(directory) else runs_below(directory)


def runs_below(directory: Path) -> list[Path]:
    """Return the runs in a directory, then the runs one level deeper (as in sweeps), each list sorted by name.

    Directories that the user may not enter are left out. Raises OSError if `directory` cannot be read.
    """
    below = sorted(path for path in directory.iterdir() if os.path.isdir(path))
    runs = [path for path in below if is_run(path)]
    nested: list[Path] = []
    for path in below:
        if path not in runs:
            with suppress(OSError):
                nested += sorted(run for run in path.iterdir() if os.path.isdir(run) and is_run(run))
    return runs + nested


def require_nothing_lost(run: RunFiles) -> None:
    """Raise UsageError if a new run would replace a file that gpt did not write, or hide runs directly below it."""
    if foreign := run.foreign():
        raise foreign_file(run.path, foreign[0].relative_to(run.path))
    below = runs_below(run.path) if run.path.is_dir() and not run.exists() else []
    if any(path.parent == run.path for path in below):
        hint = f"‹out={visible(run.path / 'NAME')}›"
        raise UsageError(shown(run.path), "this directory contains runs, which a new run would hide", hint=hint)


def overview(path: Path) -> Overview:
    """Return a summary of a run: state, steps, losses. A damaged run raises no error, but has the state "damaged"."""
    problem = ""
    for _ in range(2):  # a trainer may remove a file while it is read
        try:
            return _overview(RunFiles(path))
        except GptError as error:
            where = error.where if error.where.endswith('"') else shown(error.where)  # a config has line numbers
            problem = f"{where}: {error.sentence}"
        except OSError as error:
            problem = f"{shown(path)}: {reason(error)}"
    with suppress(OSError):
        return Overview(path, "damaged", **_traces(RunFiles(path)), problem=problem)
    return Overview(path, "damaged", problem=problem)


def _overview(run: RunFiles) -> Overview:
    training = is_held(run.path)
    newest = _header(next(reversed(run.steps().values()), None))
    best = _header(run.best)
    header = newest or best
    if not training and not run.files():
        return Overview(run.path, "empty", **(_traces(run) if run.path.is_dir() else {}))
    config = _config(run, header) if run.config.exists() or not training else None
    outcome = {} if training else read_outcome(run)
    state = "training" if training else _ENDS.get(str(outcome.get("stopped_by")), "stopped")
    if state == "stopped":
        state = "empty" if header is None else "imported" if header.progress.imported else "stopped"
    best_loss = None if header is None else (best or header).progress.best_loss
    closing = figure(outcome.get("validation_loss"))
    bits = _bits_of(run, best_loss) if closing is None else figure(outcome.get("bits_per_byte"))
    done = step_number(outcome.get("step"))
    if done is None:
        last = next(last_metrics(run.metrics), {"step": 0})
        done = max(int(last["step"]), 0 if header is None else header.step)
    tokenizer = "" if header is None else header.metadata["tokenizer"]
    return Overview(
        run.path,
        state,
        steps=done,
        best_loss=best_loss,
        validation_loss=closing,
        num_parameters=None if header is None else sum(map(math.prod, header.shapes.values())),
        config=config,
        outcome=outcome,
        bits_per_byte=bits,
        tokenizer=hashlib.sha256(tokenizer.encode("utf-8", "backslashreplace")).hexdigest() if tokenizer else None,
        **_traces(run),
    )


def _header(path: Path | None) -> Header | None:
    """Return the header of a checkpoint; None if `path` is None or the file is missing."""
    return read_header(path) if path is not None and path.exists() else None


def _config(run: RunFiles, header: Header | None) -> Config:
    """Return a run's config: from `header`, which is faster, unless config.yaml is newer than the checkpoint."""
    path = run.config
    is_older = header and is_config(path, whole=True) and path.stat().st_mtime_ns <= header.path.stat().st_mtime_ns
    return header.config if header and is_older else read_run_config(path)


def read_outcome(run: RunFiles) -> dict[str, Any]:
    """Return the content of outcome.json, or {} if it is missing; raise CheckpointError if it is damaged."""
    if not run.outcome.exists():
        return {}
    with suppress(AttributeError, ValueError, RecursionError):
        outcome = strict_json(read_bytes(run.outcome, CheckpointError, most=_MOST).decode("utf-8"))
        numbers = (value for value in outcome.values() if type(value) in (int, float))  # a bool is an int too
        # numbers that a training can reach
        if str(outcome.get("stopped_by")) in _ENDS and all(figure(number) is not None for number in numbers):
            return outcome
    raise CheckpointError(shown(run.outcome), "this is not the outcome of a run")


def _bits_of(run: RunFiles, best_loss: float | None) -> float | None:
    """Convert `best_loss` (nats per token) to bits per byte by the ratio of both in the last evaluation, or None."""
    if best_loss is None:
        return None
    for line in last_metrics(run.metrics):
        with suppress(KeyError, ZeroDivisionError):
            return figure(best_loss * (line["bits_per_byte"] / line["validation_loss"]))
    return None


def _traces(run: RunFiles) -> dict[str, Any]:
    """Return the total size of a run's files and the time of the last write, as fields of Overview."""
    stats = [path.stat() for path in run.files()]
    changed = [one.st_mtime for one in stats] or [run.path.stat().st_mtime]
    return {"num_bytes": sum(one.st_size for one in stats), "changed_at": max(changed)}
