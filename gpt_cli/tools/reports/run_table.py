"""List runs, and remove them. Needs no torch."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gpt_cli.checkpoints.lock import is_held, sole_trainer
from gpt_cli.checkpoints.run_list import Overview, have_one_tokenizer, likeness_of, overview
from gpt_cli.checkpoints.run_paths import SWEEP, SWEEP_PAGE, RunFiles, short_run_name
from gpt_cli.common.file_signatures import LOCK, is_lock, is_ours
from gpt_cli.common.files import remove as remove_file
from gpt_cli.common.files import remove_directory, remove_if_empty
from gpt_cli.common.host import Host
from gpt_cli.common.results import WIDTH, Figures, Result, Screen
from gpt_cli.common.tables import Rows, narrow_table, table
from gpt_cli.common.units import age, quantity, size
from gpt_cli.config.load import Likeness
from gpt_cli.errors import counted, shown, visible
from gpt_cli.tools.reports.request import RemoveRequest, RunsRequest

_MOST_SETTINGS, _FIRST = 6, ("data.source", "train.max_time")  # a row shows 6 settings, these first
# the columns, and what each sorts by; a missing figure comes last
_COLUMNS: dict[str, Callable[[Overview], Any]] = {
    "name": lambda run: str(run.path),
    "state": lambda run: run.state,
    "steps": lambda run: None if run.steps is None else -run.steps,
    "loss": lambda run: run.result and run.result.loss,
    "bits/byte": lambda run: run.result and run.result.bits_per_byte,
    "parameters": lambda run: None if run.num_parameters is None else -run.num_parameters,
    "size": lambda run: -run.num_bytes,
    "age": lambda run: None if run.changed_at is None else -run.changed_at,
}


@dataclass(frozen=True)
class ListedRun(Figures):
    """A run as a row of `gpt runs`; `alike` is the shipped config of its name, or the one most like its config."""

    overview: Overview
    name: str  # as every command accepts it
    alike: Likeness | None  # None if the config of the run is unknown
    listed_at: float  # seconds since 1970

    _repr_keys = ("name", "state", "steps", "validation_loss")

    def as_dict(self) -> dict[str, Any]:
        """Return the run as `gpt runs --json` prints it; `differs`: settings that `alike` has otherwise, or {}."""
        run = self.overview
        train = None if run.config is None or run.state == "imported" else run.config.train
        changed = None if run.changed_at is None else datetime.fromtimestamp(run.changed_at).astimezone()
        return {
            "run": str(run.path),
            "name": self.name,
            "state": run.state,
            "stopped_by": run.outcome.get("stopped_by"),
            "steps": run.steps,
            "max_steps": None if train is None else train.max_steps,
            "max_time": train and train.max_time,
            "best_validation_loss": run.best_loss,
            "validation_loss": run.validation_loss,
            "validation_loss_error": run.result and run.result.error,
            "bits_per_byte": run.bits_per_byte,
            "parameters": run.num_parameters,
            "bytes": run.num_bytes,
            "changed": changed and changed.isoformat(timespec="seconds"),
            "age_seconds": changed and round(max(0.0, self.listed_at - changed.timestamp())),
            "config": self.alike and self.alike.shipped,
            "differs": {} if self.alike is None else dict(self.alike.settings),
            "problem": run.problem,
        }

    def figures(self) -> tuple[str, ...]:
        """Return the cells of the run's row, one for each of _COLUMNS."""
        run = self.overview
        settings = None if run.config is None or run.state == "imported" else run.config.train
        of = "" if settings is None or settings.max_steps is None else f"/{settings.max_steps:,}"
        return (
            visible(self.name),
            run.state,
            "" if run.steps is None else f"{run.steps:,}{of}",
            "" if run.result is None else str(run.result),
            "" if run.bits_per_byte is None else f"{run.bits_per_byte:.4f}",
            "" if run.num_parameters is None else quantity(run.num_parameters),
            size(run.num_bytes),
            "" if run.changed_at is None else age(self.listed_at - run.changed_at),
        )

    def differs(self) -> str:
        """Return as text the settings that differ from the shipped config `alike`, or how the run is damaged."""
        if self.overview.problem is not None:
            return visible(self.overview.problem)
        if self.alike is None:
            return ""
        settings = sorted(self.alike.settings.items(), key=lambda setting: setting[0] not in _FIRST)
        words = [f"{key.partition('.')[2]}={visible(value)}" for key, value in settings]
        if len(words) > _MOST_SETTINGS:  # as of every run whose settings gpt chose
            words[_MOST_SETTINGS - 1 :] = [f"and {len(words) - _MOST_SETTINGS + 1} more"]
        return f"{self.alike.shipped}: {' '.join(words)}" if words else self.alike.shipped


def listed(runs: Sequence[Overview]) -> tuple[ListedRun, ...]:
    """Return each run as a `ListedRun`, with its short name and the shipped config to compare with its config."""
    now = time.time()
    return tuple(ListedRun(run, short_run_name(run.path), likeness_of(run), now) for run in runs)


def remarks_on(runs: Sequence[ListedRun]) -> Iterator[str]:
    """Yield sentences that explain the losses, if a run was not evaluated after training or if tokenizers differ."""
    if any(run.overview.result is not None and not run.overview.result.closed for run in runs):
        yield "best: the lowest validation loss so far, of a run without a closing evaluation"
    if not have_one_tokenizer(run.overview for run in runs):
        yield "the tokenizers of these runs differ, so bits/byte compares and ranks them, not the loss per token"


def sorted_by(runs: Sequence[Overview], column: str | None) -> list[Overview]:
    """Return runs sorted by `column`: lowest loss, most steps or newest first, missing values last; None sorts nothing.

    Ties keep their order. If tokenizers differ, "loss" sorts by bits per byte, since tokens differ in length.
    """
    if column is None:
        return list(runs)
    if column == "loss" and not have_one_tokenizer(runs):
        column = "bits/byte"
    order = _COLUMNS[column]
    return sorted(runs, key=lambda run: (1, 0) if order(run) is None else (0, order(run)))


class TableOfRuns(Result, ABC):
    """Base class of results that are a table of runs; `remarks` explain the losses in the table."""

    runs: tuple[ListedRun, ...]
    remarks: tuple[str, ...]

    @abstractmethod
    def last_cells(self) -> Sequence[str]:
        """Return the last column of the table: its heading, then a cell for each run."""

    def below(self) -> list[Rows]:
        """Return further tables, to show below the table of runs."""
        return []

    def rows(self) -> Rows:
        """Return the table of runs: a heading, and a row for each run."""
        rows = [tuple(_COLUMNS), *(run.figures() for run in self.runs)]
        return [(*row, last) for row, last in zip(rows, self.last_cells(), strict=True)]

    def parts(self) -> list[Rows | str]:
        """Return the tables, then the remarks; an empty list if there are no runs."""
        return [self.rows(), *self.below(), *self.remarks] if self.runs else []

    def table(self, width: int | None) -> str:
        """Return the tables as text; to fit `width` (None: any), move last cells below rows and leave columns out."""
        if not self.runs:
            return ""
        spare, dear = ["parameters", "bits/byte", "size"], ["age", "steps"]
        if not have_one_tokenizer(run.overview for run in self.runs):  # bits/byte compares these runs
            spare, dear = ["parameters", "size"], ["loss", "age", "steps"]
        runs = table(self.rows()) if width is None else narrow_table(self.rows(), width, spare, dear)
        return "\n\n".join([runs, *map(table, self.below())])

    def as_text(self, width: int = WIDTH) -> str:
        """Return the table of runs and any further tables as text, then the remarks."""
        return "\n".join(filter(None, [self.table(width), *self.remarks]))

    def show(self, screen: Screen) -> None:
        """Print the tables to stdout, fitted to the width of a terminal, and the remarks to stderr."""
        if rows := self.table(screen.width if screen.is_terminal else None):
            screen.result(rows)
        for remark in self.remarks:
            screen.notice(remark)


@dataclass(frozen=True)
class Runs(TableOfRuns):
    """Result of `gpt runs`: the runs of a directory; `remarks` explain the losses, or why there are no runs."""

    runs: tuple[ListedRun, ...]
    remarks: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `gpt runs --json` prints: under "runs", a list of each run's `as_dict()`."""
        return {"runs": [run.as_dict() for run in self.runs]}

    def last_cells(self) -> Sequence[str]:
        """Return the last column: a heading, then the settings in which each run differs from a shipped config."""
        return ["differs from the shipped config", *(run.differs() for run in self.runs)]


def list_runs(request: RunsRequest, target: tuple[Path, list[Path]], host: Host) -> Runs:
    """Return the runs of `target` (directory, runs) in state `request.state` (None: any), sorted by `request.sort`."""
    where, paths = target
    runs = [overview(path) for path in paths]
    chosen = listed(sorted_by([run for run in runs if request.state in (None, run.state)], request.sort))
    if chosen:
        remarks = tuple(remarks_on(chosen))
    elif runs:
        remarks = (f"none of {counted(len(runs), 'run')} in {shown(where)} is {request.state}",)
    else:
        remarks = (f"there are no runs in {shown(where)}; gpt train --data my.txt trains one",)
    return Runs(chosen, remarks)


@dataclass(frozen=True)
class Removed(Result):
    """Result of `gpt runs rm`: the paths of the removed runs."""

    runs: tuple[str, ...]

    def as_text(self, width: int = WIDTH) -> str:
        """Return a line for each removed run."""
        return "\n".join(map(removed, self.runs))


def removed(run: str | Path) -> str:
    """Return the message that a run was removed, or that it was removed from a directory that still has other files."""
    return f"removed the run in {visible(run)}" if os.path.exists(run) else f"removed {visible(run)}"


def remove_runs(request: RemoveRequest, runs: Sequence[RunFiles], host: Host) -> Removed:
    """Remove each run and return the paths; files that no run wrote stay, with a warning to `host`."""
    return Removed(tuple(str(run.path) for run in removing(runs, host)))


def removing(runs: Sequence[RunFiles], host: Host) -> Iterator[RunFiles]:
    """Remove runs one after another, and yield each after its removal.

    A run's config is removed after its checkpoints and metrics, so that an interrupted removal can be repeated. Also
    removes directories that are then empty and, with the last run of a sweep, the sweep's files.
    """
    for run in runs:
        with sole_trainer(run.path, host.warn, removes=True):  # so that no training of it begins meanwhile
            foreign = run.foreign()
            for folder in run.logger_folders():
                remove_directory(folder)
            for path in (*run.files(), *run.temporaries()):
                if path not in foreign:
                    remove_file(path)
            for directory in (run.checkpoints, run.attention, run.lens, run.logs):
                remove_if_empty(directory)
        if why := remove_if_empty(run.path):
            if left := ", ".join(sorted(visible(path.name) for path in run.path.iterdir())):
                host.warn(f"{visible(run.path)} stays: it also contains {left}, which no run wrote")
            else:
                host.warn(f"{visible(run.path)} stays, empty: {why}")
        _remove_sweep(run.path.parent)
        yield run


def _remove_sweep(directory: Path) -> None:
    """Remove the directory of a sweep if nothing is left in it but the sweep's own files."""
    left = {path.name: path for path in directory.glob("*")}  # none if it may not be listed
    names = {SWEEP, SWEEP_PAGE} | (set() if is_held(directory) else {LOCK})  # a killed sweep leaves its lock
    if SWEEP in left and left.keys() <= names and all(is_lock(path) or is_ours(path) for path in left.values()):
        for path in left.values():
            remove_file(path)
        remove_if_empty(directory)
