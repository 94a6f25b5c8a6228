"""Finding, the base class of the results of `gpt heads`, `lens`, `patch` and `compare`. Needs no torch."""

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
from gpt_cli.checkpoints.run_paths import run_name
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
class Finding(Figures, ABC):
    """Result of an inspection: measured figures (arrays with axes) by name, as in `finding["induction"].values`.

    `about` describes the model and what it read; `lists` has results without axes, such as texts. If there are
    several training steps, `stacked` holds a finding for each, and every figure has step as its first axis.

    Each command has a subclass, which shows its results as tables, JSON, CSV, picture and HTML page. `tabled` maps JSON
    keys to axes, such as "heads" to layer and head. By default, --json prints a finding's `about`, single numbers and
    `lists`, and, under each key of `tabled`, a row per combination of labels of its axes.
    """

    about: Mapping[str, Any]
    figures: tuple[Figure, ...]
    lists: Mapping[str, Any] = field(default_factory=dict)
    stacked: tuple[Finding, ...] = ()
    out: str | None = None

    tabled: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # JSON key of a table -> axes of its rows; CSV: the last
    beside: ClassVar = (1, 1)  # panels in a row of a picture, and in a row of a picture by step

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
        if not self.stacked:
            return {**self.about, **self.measured()}
        steps = [{"step": at.about["step"], **at.measured()} for at in self.stacked]
        return {**self.about, **self.lists, "steps": steps}

    def measured(self) -> dict[str, Any]:
        """Return the measured part of the --json object: single numbers, `lists`, and rows for each key of `tabled`."""
        numbers = {name: number for name, number in self.numbers.items() if number is not None}
        rows = {key: self.rows_along(*axes) for key, axes in self.tabled.items()}
        return numbers | {**self.lists} | {key: table_rows for key, table_rows in rows.items() if table_rows}

    def csv_rows(self) -> list[Row]:
        """Return the rows of a CSV file; for several training steps, each row begins with the step and its numbers."""
        if self.stacked:
            each = ((at, {"step": at.about["step"], **at.numbers}) for at in self.stacked)
            return [{**numbers, **row} for at, numbers in each for row in at.csv_rows()]
        return self.rows_along(*[*self.tabled.values()][-1])

    @abstractmethod
    def parts(self, width: int = WIDTH) -> Sequence[Rows | str]:
        """Return tables for a terminal of `width` columns, and lines of text between them."""

    def as_text(self, width: int = WIDTH) -> str:
        """Return the tables as text, with empty lines between them."""
        return joined(self.parts(width))

    def legend(self) -> Iterable[str]:
        """Return lines that explain the tables."""
        return ()

    def show(self, screen: Screen) -> None:
        """Show the tables, and their legend on stderr; show neither if the finding was written to a file."""
        if self.out is None:
            for line in self.legend():
                screen.notice(line)
            super().show(screen)

    def as_csv(self) -> bytes:
        """Return `csv_rows` as CSV below a line of headings; None is an empty cell, and no text acts as a formula.

        A list becomes several columns: raises_1_token has the value of `token` in the first entry of the list `raises`.
        """
        flat = [dict(_flat(row)) for row in self.csv_rows()]
        columns = [*dict.fromkeys(key for row in flat for key in row)]
        text = io.StringIO()
        text.write(f"{','.join(columns)}\n")
        # a carriage return in a token is quoted too
        csv.DictWriter(text, columns, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC).writerows(flat)
        return text.getvalue().encode()

    def panels(self) -> Iterable[Panel]:
        """Return the panels (heat maps, plots) of the finding's picture; empty if it has no picture."""
        return ()

    def origin(self) -> Origin:
        """Return the caption of the picture: run or checkpoint, step, and text or prompt."""
        if self.stacked:
            return Origin(self.about["run"], self.stacked[-1].about["step"], self.source)
        return Origin(self.about["checkpoint"], self.about["step"], self.source)

    @property
    def source(self) -> str:
        """What the model read, as pictures and legends name it: a prompt, or the sources of a text."""
        return ", ".join(source_names(self.about.get("text", self.about.get("prompt"))))

    @property
    def _model(self) -> str:
        """The run and the step of the model, as legends name them."""
        return f"{run_name(Path(self.about['checkpoint']))}, step {self.about['step']:,}"

    def as_picture(self, kind: str = "png", notice: Notify = ignored) -> bytes | None:
        """Return a picture, or None if the command draws none; `notice` receives a line if fonts are missing."""
        if not (panels := [*self.panels()]):
            return None
        from gpt_cli.common.drawing.draw_panels import draw_panels

        return draw_panels(self.origin(), panels, notice, kind, beside=self.beside[bool(self.stacked)])

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
            content = json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False)
            return f"{content}\n".encode("utf-8", "backslashreplace")
        return self.as_csv() if ending == ".csv" else (self.as_page() or "").encode()


def stack(findings: Sequence[Finding], about: Mapping[str, Any], lists: Mapping[str, Any] | None = None) -> Finding:
    """Join findings of training steps into one, with `about` and `lists`; its figures have step as the first axis."""
    last = findings[-1]

    def stacked(figure: Figure) -> Figure:
        each = [finding[figure.name] for finding in findings]
        error = None if figure.error is None else np.stack([one.error for one in each if one.error is not None])
        coords = {"step": [at.about["step"] for at in findings], **figure.coords}
        return replace(figure, coords=coords, values=np.stack([one.values for one in each]), error=error)

    figures = tuple(map(stacked, last.figures))
    return replace(last, about=about, figures=figures, lists=lists or {}, stacked=tuple(findings))


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


def _flat(row: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a row's (column, cell) pairs; a nested list gets columns such as raises_1_token. No text is a formula."""
    for key, value in row.items():
        parts = {str(n): part for n, part in enumerate(value, 1)} if isinstance(value, list) else value
        if isinstance(parts, Mapping):
            yield from _flat(parts, f"{name}{key}_")
        else:
            yield f"{name}{key}", inert_cell(value) if isinstance(value, str) else value


def joined(parts: Iterable[Rows | str]) -> str:
    """Return tables and lines of text as one text, with empty lines between them."""
    return "\n\n".join(part if isinstance(part, str) else table(part) for part in parts)
