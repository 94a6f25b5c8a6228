"""What `gpt heads --over-training` does: the scores of heads by step, from the snapshots that a run has kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_cli.checkpoints.finding import find_header
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console
from gpt_cli.drawing.labels import label_of
from gpt_cli.errors import counted, visible
from gpt_cli.files import write_durably
from gpt_cli.inspecting.heads.history import SHARES, history_csv, history_of, strongest
from gpt_cli.inspecting.heads.report import as_json, name_of, sort_rows
from gpt_cli.inspecting.snapshots import losses_by_step, newest_snapshot, read_snapshots
from gpt_cli.inspecting.stages import parse_selection
from gpt_cli.tables import table

MAX_ROWS = 20
MAX_HEADS = 6  # beside each other in 80 columns
_HEADINGS = {"previous_token": "previous", "duplicate_token": "duplicate", "first_token": "first token"}


@dataclass(frozen=True)
class HistoryWanted:
    """The heads of a run over its training, checked against the flags and the header alone."""

    run: Path | None
    layers: str | None
    heads: str | None
    sort: str | None
    out: Path | None  # ends in .json, .csv or .png; None prints a table
    json: bool


def show_history(wanted: HistoryWanted, console: Console) -> None:
    """Print the scores of a run by step, or write them to a file.

    Raises CheckpointError for a run without snapshots or with a damaged one, UsageError for layers it does not have.
    """
    run = RunFiles(find_header(wanted.run).path.parent.parent)
    num_layers, num_heads = newest_snapshot(run).weights.shape[:2]
    layers = parse_selection(wanted.layers, num_layers, "--layers")
    heads = parse_selection(wanted.heads, num_heads, "--heads")
    losses = losses_by_step(run)
    history = history_of(str(run.path), read_snapshots(run), losses, layers, heads, wanted.sort)
    if others := len(run.snapshots()) - len(history["steps"]):
        console.notice(f"left out: {counted(others, 'snapshot')} of another text, which the run watched before")
    if wanted.out is not None:
        ending = wanted.out.suffix.lower()
        if ending == ".png":
            with importing_torch():
                from gpt_cli.inspecting.heads.history_picture import draw_history
            content = draw_history(history, losses, console.notice)
        else:
            content = history_csv(history) if ending == ".csv" else as_json(history)
        write_durably(wanted.out, [content])
        numbers = ((len(history["steps"]), "snapshot"), (len(layers), "layer"), (len(heads), "head"))
        console.notice(f"wrote {visible(wanted.out)}: {', '.join(counted(number, noun) for number, noun in numbers)}")
    if wanted.json:
        console.json(history)
    elif wanted.out is None:
        console.notice(f"{history['run']}, the attention to “{label_of(history['prompt'], 60)}”")
        shown_steps = evenly(history["steps"], MAX_ROWS)
        if len(shown_steps) < len(history["steps"]):
            console.notice(
                f"{len(shown_steps)} of {len(history['steps'])} snapshots are shown; --json and --out have all"
            )
        rows = by_column(shown_steps) if wanted.sort is None else by_head(shown_steps, wanted.sort)
        console.result(table(rows))


def evenly(steps: Sequence[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """At most so many steps, evenly chosen, the first and the last among them."""
    count = min(most, len(steps))
    return [steps[round(i * (len(steps) - 1) / max(1, count - 1))] for i in range(count)]


def by_column(steps: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """A row for each step: its loss, and the head that scores highest in each share, with its score."""
    rows = [("step", "loss", *(_HEADINGS.get(name, name) for name in SHARES))]
    for at in steps:
        best = [(name, strongest(at["heads"], name)) for name in SHARES]
        cells = ["-" if row is None else f"{name_of(row)} {row[name]:.2f}" for name, row in best]
        rows.append((str(at["step"]), f"{at['loss']:.3f}", *cells))
    return rows


def by_head(steps: Sequence[Mapping[str, Any]], column: str) -> list[tuple[str, ...]]:
    """A row for each step: its loss, and the scores in one column of the heads that end with the highest."""
    last = sort_rows(steps[-1]["heads"], column)[:MAX_HEADS]
    rows = [("step", "loss", *map(name_of, last))]
    for at in steps:
        scores = {name_of(row): row[column] for row in at["heads"]}
        found = [scores[name_of(row)] for row in last]
        rows.append((str(at["step"]), f"{at['loss']:.3f}", *("-" if x is None else f"{x:.2f}" for x in found)))
    return rows
