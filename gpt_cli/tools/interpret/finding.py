"""Finding, the result of `gpt heads`, `lens`, `patch`, `compare`, and View, which shows it. Needs no torch."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.common.drawing.file_types import PICTURES
from gpt_cli.common.drawing.panels import Panel
from gpt_cli.common.drawing.token_labels import Origin, inert_cell
from gpt_cli.common.files import write_durably
from gpt_cli.common.host import Host, Notify, ignored
from gpt_cli.common.results import WIDTH, Figures, Screen
from gpt_cli.common.tables import Rows, table
from gpt_cli.errors import counted, visible
from gpt_cli.text.sources import source_names
from gpt_cli.tools.interpret.figure import Figure, number_of

MAX_ROWS = 20  # of a table by step
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Finding(Figures):
    """Result of an inspection: measured figures (arrays with axes) by name, as in `finding["induction"].values`.

    `about` describes the model and what it read; `lists` has results without axes, such as texts. If there are
    several training steps, `stacked` holds a finding for each, and every figure has step as its first axis.
    """

    view: View = field(repr=False)
    about: Mapping[str, Any]
    figures: tuple[Figure, ...]
    lists: Mapping[str, Any] = field(default_factory=dict)
    stacked: tuple[Finding, ...] = ()
    out: str | None = None

    def __getitem__(self, name: str) -> Figure:
        return {figure.name: figure for figure in self.figures}[name]

    def __contains__(self, name: str) -> bool:
        return any(figure.name == name for figure in self.figures)

    @property
    def coords(self) -> dict[str, Sequence[Any]]:
        """The labels along each axis of the figures, by axis name."""
        return {axis: labels for figure in self.figures for axis, labels in figure.coords.items()}

    def rows_along(self, *axes: str) -> list[Row]:
        """Return a dict per combination of labels of `axes`: labels, values, errors of figures with just these axes."""
        figures = [figure for figure in self.figures if figure.axes == axes]
        rows = []
        for index in np.ndindex(figures[0].values.shape if figures else (0,)):
            row = {axis: figures[0].coords[axis][n] for axis, n in zip(axes, index, strict=True)}
            for figure in figures:
                row[figure.name] = number_of(figure.values[index])
                if figure.error is not None:
                    row[f"{figure.name}_error"] = number_of(figure.error[index])
            rows.append(row)
        return rows

    @property
    def numbers(self) -> Row:
        """The figures that are single numbers (without axes), by name."""
        return {figure.name: number_of(figure.values) for figure in self.figures if not figure.axes}

    def to_xarray(self) -> Any:
        """Convert the figures to an xarray.Dataset, which needs xarray; errors are variables named `{figure}_error`."""
        xarray, arrays = import_module("xarray"), dict[str, Any]()
        for figure in self.figures:
            labels = {axis: [*of_axis] for axis, of_axis in figure.coords.items()}  # xarray would interpret a tuple
            for end, part in (("", figure.values), ("_error", figure.error)):
                if part is not None:
                    arrays[figure.name + end] = xarray.DataArray(part, labels, figure.axes)
        return xarray.Dataset(arrays)

    def key_figures(self) -> dict[str, Any]:
        """Return `about` and all single numbers in one dict; its key "figures" lists the names of the other figures."""
        return {**self.about, **self.numbers, "figures": [figure.name for figure in self.figures if figure.axes]}

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return self.view.as_dict(self)

    def parts(self, width: int = WIDTH) -> Sequence[Rows | str]:
        """Return the tables of the finding, and lines of text between them."""
        return self.view.tables(self, width)

    def as_text(self, width: int = WIDTH) -> str:
        """Return the tables as text, with empty lines between them."""
        return _joined(self.parts(width))

    def as_coloured_text(self, width: int = WIDTH) -> str:
        """Return the tables as text, with colours where they have a meaning."""
        return _joined(self.view.coloured_tables(self, width))

    def show(self, screen: Screen) -> None:
        """Show the tables, and their legend on stderr; show neither if the finding was written to a file."""
        if self.out is None:
            for line in self.view.legend(self):
                screen.notice(line)
            super().show(screen)

    def as_csv(self) -> bytes:
        """Return the bytes of a CSV file; the `view` of the command chooses its rows."""
        return as_csv(self.view.csv_rows(self))

    def as_picture(self, kind: str = "png", notice: Notify = ignored) -> bytes | None:
        """Return a picture, or None if the command draws none; `notice` receives a line if fonts are missing."""
        if not (panels := [*self.view.panels(self)]):
            return None
        from gpt_cli.common.drawing.draw_panels import draw_panels

        return draw_panels(self.view.origin(self), panels, notice, kind, beside=self.view.beside[bool(self.stacked)])

    def as_page(self) -> str | None:
        """Return an HTML page that works offline, or None if the command has no page for these results."""
        page = self.view.page(self.as_dict())
        return None if page is None else page.decode()

    def saved(self, host: Host, out: Path | None, *numbers: tuple[int, str]) -> Finding:
        """Write the finding to `out`, if set, and return it; a notice says what it has: "4 heads" for (4, "head")."""
        if out is None:
            return self
        with host.working(f"writing {visible(out)}"):
            write_durably(out, [self._as_file(out.suffix.lower(), host.notice)])
        said = ", ".join(counted(number, noun) for number, noun in numbers)
        host.notice(f"wrote {visible(out)}" + (f": {said}" if said else ""))
        return replace(self, out=str(out))

    def _as_file(self, ending: str, notice: Notify) -> bytes:
        """Encode the finding as JSON, CSV, HTML or a picture, by `ending`, which the request has already checked."""
        if ending in PICTURES:
            return self.as_picture(ending[1:], notice) or b""
        if ending == ".json":
            return f"{json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False)}\n".encode()
        return self.as_csv() if ending == ".csv" else (self.as_page() or "").encode()


class View(ABC):
    """Base class of views: each shows a command's results (a Finding) as tables, JSON, CSV, picture and HTML page.

    `tabled` maps JSON keys to axes, such as "heads" to layer and head. By default, --json prints a finding's `about`,
    single numbers and `lists`, and, under each key of `tabled`, a row per combination of labels of its axes.
    """

    tabled: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # JSON key of a table -> axes of its rows; CSV: the last
    beside: ClassVar = (1, 1)  # panels in a row of a picture, and in a row of a picture by step

    def as_dict(self, finding: Finding) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        if not finding.stacked:
            return {**finding.about, **self.measured(finding)}
        steps = [{"step": at.about["step"], **self.measured(at)} for at in finding.stacked]
        return {**finding.about, **finding.lists, "steps": steps}

    def measured(self, finding: Finding) -> dict[str, Any]:
        """Return the measured part of the --json object: single numbers, `lists`, and rows for each key of `tabled`."""
        numbers = {name: number for name, number in finding.numbers.items() if number is not None}
        rows = {key: self.rows(finding, *axes) for key, axes in self.tabled.items()}
        return numbers | {**finding.lists} | {key: table_rows for key, table_rows in rows.items() if table_rows}

    def rows(self, finding: Finding, *axes: str) -> list[Row]:
        """Return a dict per combination of labels of `axes`: labels, values, errors of figures with just these axes."""
        return finding.rows_along(*axes)

    def csv_rows(self, finding: Finding) -> list[Row]:
        """Return the rows of a CSV file; for several training steps, each row begins with the step and its numbers."""
        if finding.stacked:
            each = ((at, {"step": at.about["step"], **at.numbers}) for at in finding.stacked)
            return [{**numbers, **row} for at, numbers in each for row in self.csv_rows(at)]
        return self.rows(finding, *[*self.tabled.values()][-1])

    @abstractmethod
    def tables(self, finding: Finding, width: int) -> Sequence[Rows | str]:
        """Return tables for a terminal, and lines of text between them."""

    def coloured_tables(self, finding: Finding, width: int) -> Sequence[Rows | str]:
        """Return the tables for a terminal with colours."""
        return self.tables(finding, width)

    def legend(self, finding: Finding) -> Iterable[str]:
        """Return lines that explain the tables."""
        return ()

    def panels(self, finding: Finding) -> Iterable[Panel]:
        """Return the panels (heat maps, plots) of the finding's picture; empty if the view has no picture."""
        return ()

    def origin(self, finding: Finding) -> Origin:
        """Return the caption of the picture: run or checkpoint, step, and text or prompt."""
        about, read = finding.about, self.source_of(finding)
        if finding.stacked:
            return Origin(about["run"], finding.stacked[-1].about["step"], read)
        return Origin(about["checkpoint"], about["step"], read)

    def source_of(self, finding: Finding) -> str:
        """Return what the model read, as pictures and legends name it: a prompt, or the sources of a text."""
        return ", ".join(source_names(finding.about.get("text", finding.about.get("prompt"))))

    def page(self, report: dict[str, Any]) -> bytes | None:
        """Return an HTML page of `report`, the object that `--json` prints, or None if this view has no page."""
        return None


def stack(findings: Sequence[Finding], about: Mapping[str, Any], lists: Mapping[str, Any] | None = None) -> Finding:
    """Join findings of training steps into one, with `about` and `lists`; its figures have step as the first axis."""
    last = findings[-1]

    def stacked(figure: Figure) -> Figure:
        each = [finding[figure.name] for finding in findings]
        error = None if figure.error is None else np.stack([one.error for one in each if one.error is not None])
        coords = {"step": [at.about["step"] for at in findings], **figure.coords}
        return replace(figure, coords=coords, values=np.stack([one.values for one in each]), error=error)

    return Finding(last.view, about, tuple(map(stacked, last.figures)), lists or {}, tuple(findings))


def table_by_step(finding: Finding, headings: Iterable[str], cells_of: Callable[[Finding], Iterable[str]]) -> Rows:
    """Return a table with a row for each of at most MAX_ROWS evenly spaced steps: step, then `cells_of` its finding."""
    steps = evenly(finding.stacked, MAX_ROWS)
    return [("step", *headings), *((str(at.about["step"]), *cells_of(at)) for at in steps)]


def steps_shown(finding: Finding, noun: str) -> list[str]:
    """Return a line (in a list) that says how many steps a table shows, called `noun`; no line if it shows all."""
    number = len(finding.stacked)
    return [] if number <= MAX_ROWS else [f"{MAX_ROWS} of {counted(number, noun)} are shown; --json and --out have all"]


def evenly(steps: Sequence[T], most: int) -> list[T]:
    """Select at most `most` steps, evenly spaced, including the first and the last."""
    count = min(most, len(steps))
    return [steps[round(i * (len(steps) - 1) / max(1, count - 1))] for i in range(count)]


def as_csv(rows: Sequence[Row]) -> bytes:
    """Return rows as CSV below a line of headings; None is an empty cell, and no text acts as a spreadsheet formula.

    A list becomes several columns: raises_1_token has the value of `token` in the first entry of the list `raises`.
    """
    flat = [dict(_flat(row)) for row in rows]
    columns = [*dict.fromkeys(key for row in flat for key in row)]
    text = io.StringIO()
    text.write(f"{','.join(columns)}\n")
    # a carriage return in a token is quoted too
    csv.DictWriter(text, columns, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC).writerows(flat)
    return text.getvalue().encode()


def _flat(row: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a row's (column, cell) pairs; a nested list gets columns such as raises_1_token. No text is a formula."""
    for key, value in row.items():
        parts = {str(n): part for n, part in enumerate(value, 1)} if isinstance(value, list) else value
        if isinstance(parts, Mapping):
            yield from _flat(parts, f"{name}{key}_")
        else:
            yield f"{name}{key}", inert_cell(value) if isinstance(value, str) else value


def _joined(parts: Iterable[Rows | str]) -> str:
    return "\n\n".join(part if isinstance(part, str) else table(part) for part in parts)
