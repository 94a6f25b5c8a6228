"""What `gpt runs` does; needs no torch."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from gpt_cli.amounts import age, quantity, size
from gpt_cli.checkpoints.find import near_run
from gpt_cli.checkpoints.list import Overview, find_runs, have_one_tokenizer, overview
from gpt_cli.checkpoints.run_files import RUNS
from gpt_cli.cli.terminal import Console
from gpt_cli.config import Config
from gpt_cli.config.comparing import likeness
from gpt_cli.config.reading import read_config, shipped_configs
from gpt_cli.errors import CheckpointError, EnvironmentFailure, counted, reason, shown, visible
from gpt_cli.tables import narrow_table, table

FIGURES = ("name", "state", "steps", "loss", "bits/byte", "parameters", "size", "age")
HEAD = (*FIGURES, "differs from the shipped config")
_SPARE = ("parameters", "bits/byte", "size")  # what a narrow terminal has no room for, the first to go first
# what each column sorts by; a missing figure comes last
_ORDERS: dict[str, Callable[[Overview], Any]] = {
    "name": lambda run: str(run.path),
    "state": lambda run: run.state,
    "steps": lambda run: None if run.steps is None else -run.steps,
    "loss": lambda run: run.result and run.result.loss,
    "bits/byte": lambda run: run.result and run.result.bits_per_byte,
    "parameters": lambda run: None if run.num_parameters is None else -run.num_parameters,
    "size": lambda run: -run.num_bytes,
    "age": lambda run: None if run.changed_at is None else -run.changed_at,
}


def list_runs(*, directory: Path | None, sort: str | None, state: str | None, json: bool, quiet: bool) -> None:
    """Print a row for each run of a directory; raises CheckpointError where the user named one that does not exist."""
    console = Console(quiet)
    where = RUNS if directory is None else directory
    if directory is not None and not directory.is_dir():
        raise CheckpointError(
            shown(directory), "there is no such directory of runs", hint=near_run(directory, directories=True)
        )
    try:
        paths = find_runs(where) if where.is_dir() else []
    except OSError as error:
        raise EnvironmentFailure(f"reading {shown(where)}", reason(error)) from error
    found = [overview(path) for path in paths]
    chosen = sorted_by([run for run in found if state in (None, run.state)], sort)
    shipped = {name: read_config(str(path)) for name, path in shipped_configs().items()}
    if json:
        console.json({"runs": [row(run, where, shipped) for run in chosen]})
    elif chosen:
        cells = [_cells(run, where, shipped) for run in chosen]
        print_table(console, HEAD, cells, by_token=have_one_tokenizer(chosen))
        explain_losses(chosen, console)
    elif found:
        console.notice(f"none of {counted(len(found), 'run')} in {shown(where)} is {state}")
    else:
        console.notice(f"there are no runs in {shown(where)}; gpt train --config tiny trains one")


def sorted_by(runs: Sequence[Overview], column: str | None) -> list[Overview]:
    """Runs in the order of a column; of equal ones, and without a column, in the order given.

    Where tokenizers differ, a token is not the same amount of text, and bits per byte stand for losses.
    """
    if column is None:
        return list(runs)
    if column == "loss" and not have_one_tokenizer(runs):
        column = "bits/byte"
    order = _ORDERS[column]
    return sorted(runs, key=lambda run: (1, 0) if order(run) is None else (0, order(run)))


def print_table(console: Console, head: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, by_token: bool) -> None:
    """Print rows; on a terminal that is too narrow for them, each has its last cell on lines of its own.

    `by_token` says whether losses can be compared; else bits per byte are needed.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    spare = [name for name in _SPARE if by_token or name != "bits/byte"]
    console.result(table([head, *rows]) if width is None else narrow_table([head, *rows], width, spare))


def explain_losses(runs: Sequence[Overview], console: Console) -> None:
    """Say which losses are not what a reader would think, and by what runs are compared."""
    found = [run.result for run in runs if run.result is not None]
    if any(not one.closed for one in found):
        console.notice("best: the lowest evaluation so far, of a run without a closing evaluation")
    if not have_one_tokenizer(runs):
        console.notice(
            "the tokenizers of these runs differ, so bits/byte compares and ranks them, not the loss per token"
        )


def _cells(run: Overview, where: Path, shipped: dict[str, Config]) -> tuple[str, ...]:
    """The cells of a run in the table."""
    return (*figures(run, where), _differs(run, shipped))


def figures(run: Overview, where: Path) -> tuple[str, ...]:
    """The cells of a run but the last."""
    settings = None if run.config is None or run.state == "imported" else run.config.train
    of = "" if settings is None or settings.max_time is not None else f"/{settings.max_steps:,}"
    bits = run.result and run.result.bits_per_byte
    return (
        visible(_name(run.path, where)),
        run.state,
        "" if run.steps is None else f"{run.steps:,}{of}",
        "" if run.result is None else str(run.result),
        "" if bits is None else f"{bits:.4f}",
        "" if run.num_parameters is None else quantity(run.num_parameters),
        size(run.num_bytes),
        "" if run.changed_at is None else age(time.time() - run.changed_at),
    )


def _differs(run: Overview, shipped: dict[str, Config]) -> str:
    if run.problem is not None:
        return visible(run.problem)
    if run.config is None:
        return ""
    name, settings = likeness(run.config, run.path.name, shipped)
    words = [f"{key.partition('.')[2]}={visible(value)}" for key, value in settings.items()]
    return f"{name}: {' '.join(words)}" if words else name


def row(run: Overview, where: Path, shipped: dict[str, Config]) -> dict[str, Any]:
    """All that is known of a run, with every setting that differs, whole."""
    train = None if run.config is None else run.config.train
    changed = None if run.changed_at is None else datetime.fromtimestamp(run.changed_at).astimezone()
    alike = None if run.config is None else likeness(run.config, run.path.name, shipped)
    return {
        "run": str(run.path),
        "name": _name(run.path, where),
        "state": run.state,
        "stopped_by": run.outcome.get("stopped_by"),
        "steps": run.steps,
        "max_steps": None if train is None or train.max_time is not None else train.max_steps,
        "max_time": train and train.max_time,
        "best_validation_loss": run.best_loss,
        "validation_loss": run.validation_loss,
        "validation_loss_error": run.result and run.result.error,
        "bits_per_byte": run.bits_per_byte,
        "parameters": run.num_parameters,
        "bytes": run.num_bytes,
        "changed": changed and changed.isoformat(timespec="seconds"),
        "age_seconds": changed and round(max(0.0, time.time() - changed.timestamp())),
        "config": alike and alike.shipped,
        "differs": {} if alike is None else dict(alike.settings),
        "problem": run.problem,
    }


def _name(path: Path, where: Path) -> str:
    """The path of a run within the directory that is listed; a run that is that directory has its own name."""
    return str(path.relative_to(where)) if path != where else path.resolve().name
