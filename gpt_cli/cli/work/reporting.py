"""What `gpt report` does: it reads runs, then draws in the terminal or writes a file. Only a prompt needs torch."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console as RichConsole

from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console, colourful
from gpt_cli.errors import counted, visible
from gpt_cli.files import write_durably
from gpt_cli.reporting.content import report_page
from gpt_cli.reporting.figures import (
    QUANTITIES,
    by_token,
    curve,
    differing_settings,
    final_figures,
    means_of_records,
    result,
)
from gpt_cli.reporting.record import RunRecord, read_records
from gpt_cli.reporting.terminal import Style, draw_curves
from gpt_cli.tables import table

if TYPE_CHECKING:
    from gpt_cli.inspecting.dump import AttentionDump


@dataclass(frozen=True)
class Wanted:
    """A report, checked against the flags and the names alone."""

    runs: Sequence[Path]
    out: Path | None  # ends in .html, .png or .svg; None draws in the terminal
    axis: str
    prompt: str | None
    json: bool


def show_report(wanted: Wanted, console: Console) -> None:
    """Read the runs, and do what the flags ask for.

    Raises CheckpointError for a run that cannot be read, EnvironmentFailure where the file cannot be written.
    """
    with console.working("reading runs"):
        records = read_records(wanted.runs)
    for note in dict.fromkeys(note for record in records for note in record.notes):
        console.warn(note)
    if not by_token(records):
        console.notice(
            "the tokenizers of these runs differ, so the report compares bits per byte, not losses per token"
        )
    if wanted.out is not None:
        _write(wanted, wanted.out, records, console)
    if wanted.json:
        console.json(as_json(records))
    elif wanted.out is None:
        _draw(records, wanted.axis, console)


def write_page(runs: Sequence[Path], out: Path) -> None:
    """The page of runs alone."""
    write_durably(out, [report_page(read_records(runs))])


def _write(wanted: Wanted, out: Path, records: Sequence[RunRecord], console: Console) -> None:
    dumps = {} if wanted.prompt is None else _dumps(records, wanted.prompt, console)
    with console.working(f"writing {visible(out)}"):
        if out.suffix.lower() == ".html":
            content = report_page(records, axis=wanted.axis, dumps=dumps)
        else:
            from gpt_cli.reporting.picture import draw_report

            content = draw_report(records, wanted.axis, out.suffix.lower()[1:], console.notice)
        write_durably(out, [content])
    console.notice(f"wrote {visible(out)}: {counted(len(records), 'run')}")


def _dumps(records: Sequence[RunRecord], prompt: str, console: Console) -> Mapping[str, AttentionDump]:
    with importing_torch():
        from gpt_cli.cli.work.probing import attention_of_runs
    with console.working("computing attention"):
        return attention_of_runs({record.name: record.path for record in records}, prompt, console.warn)


def as_json(records: Sequence[RunRecord]) -> dict[str, Any]:
    """The figures of each run, and the settings in which runs differ, with a value for each of them."""
    rows = [
        {
            "run": str(record.path),
            "name": record.name,
            "state": record.state,
            **final_figures(record),
            "last": {name: _last(record, name) for name in QUANTITIES},
            "best": _best(record),
            "closed": (compared := result(record)) is not None and compared.closed,
            "config": record.differs and record.differs.shipped,
            "differs": dict(record.differs.settings) if record.differs else {},
            "notes": list(record.notes),
        }
        for record in records
    ]
    found: dict[str, Any] = {"runs": rows}
    found["settings"] = {row.name: list(row.values) for row in differing_settings(records)}
    if means := means_of_records(records):
        unit = "nats/token" if by_token(records) else "bits/byte"
        found["means"] = [mean._asdict() | {"unit": unit} for mean in means]
    return found


def _last(record: RunRecord, quantity: str) -> float | None:
    """The last point of a curve."""
    _, found = curve(record, quantity)
    return float(found[-1]) if len(found) else None


def _best(record: RunRecord) -> dict[str, float] | None:
    """The evaluation with the lowest loss that metrics record; None without one."""
    steps, losses = curve(record, "validation_loss")
    if not len(losses):
        return None
    place = int(np.argmin(losses))
    return {"step": int(steps[place]), "validation_loss": float(losses[place])}


def _draw(records: Sequence[RunRecord], axis: str, console: Console) -> None:
    """Draw on stdout, in colour on a terminal; below, the settings in which runs differ."""
    width = shutil.get_terminal_size().columns
    terminal = RichConsole(file=sys.stdout, width=width, no_color=not colourful(sys.stdout), highlight=False)
    colour = colourful(sys.stdout) and terminal.color_system in ("256", "truecolor")
    style = Style.of(width, getattr(sys.stdout, "encoding", None) or "ascii", colour=colour)
    # captured, since rich would end the process by itself when the reader of stdout goes away
    with terminal.capture() as capture:
        terminal.print(draw_curves(records, axis, style), soft_wrap=True)
    console.result(capture.get().rstrip("\n"))
    if differing := differing_settings(records):
        letters = [chr(ord("a") + place) for place in range(len(records))]
        cells = [tuple("" if value is None else visible(value, 40) for value in row.values) for row in differing]
        rows = [(row.name, *of_row) for row, of_row in zip(differing, cells, strict=True)]
        console.result("\n" + table([("settings that differ", *letters), *rows]))
