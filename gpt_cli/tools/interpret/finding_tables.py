"""Make tables of findings: cells with errors, matrices as wide as the terminal, and rows by training step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from gpt_cli.common.tables import Rows
from gpt_cli.errors import counted
from gpt_cli.tools.interpret.figure import Figure, names_along
from gpt_cli.tools.interpret.finding import Finding

MAX_ROWS = 20  # of a table by step
T = TypeVar("T")


def cell(number: float | None, error: float | None = None, decimals: int = 2, *, sign: str = "") -> str:
    """Format a number and its standard error, if any, as a table cell; a missing number is a dash."""
    if number is None or number != number:
        return "-"
    text = f"{number:{sign}z,.{decimals}f}"
    return text if error is None or error != error else f"{text} ±{error:,.{decimals}f}"


def cell_at(figure: Figure, index: tuple[int, ...] = (), decimals: int = 2) -> str:
    """Format the value of a figure at `index`, and its error, as a table cell."""
    error = None if figure.error is None else figure.error[index]
    return cell(figure.values[index], error, decimals)


def cells(figure: Figure, decimals: int = 2, *, with_error: bool = True) -> list[str]:
    """Format all values of a figure as table cells, in the order of its axes."""
    figure = figure if with_error else replace(figure, error=None)
    return [cell_at(figure, index, decimals) for index in np.ndindex(figure.values.shape)]


def matrix(heading: str, down: Sequence[str], figure: Figure, fitting: int, decimals: int = 2) -> Rows:
    """Return a figure [row, column] as a table: `down` names rows; `fitting` columns at most, evenly up to the last."""
    across = names_along(figure.axes[1], figure.coords[figure.axes[1]])
    shown = spaced(len(across), fitting)
    rows = ((name, *(cell_at(figure, (row, column), decimals) for column in shown)) for row, name in enumerate(down))
    return [(heading, *(across[column] for column in shown)), *rows]


def table_by_step(finding: Finding, headings: Iterable[str], cells_of: Callable[[Finding], Iterable[str]]) -> Rows:
    """Return a table with a row for each training step, for at most MAX_ROWS evenly spaced steps."""
    steps = evenly(finding.stacked, MAX_ROWS)
    return [("step", *headings), *((str(at.about["step"]), *cells_of(at)) for at in steps)]


def evenly(steps: Sequence[T], most: int) -> list[T]:
    """Select at most `most` steps, evenly spaced, including the first and the last."""
    count = min(most, len(steps))
    return [steps[round(i * (len(steps) - 1) / max(1, count - 1))] for i in range(count)]


def spaced(number: int, fitting: int) -> list[int]:
    """Select at most `fitting` of the indices 0 to number - 1, evenly spaced; the last index is always selected."""
    count = min(number, max(1, fitting))
    return sorted(number - 1 - n * number // count for n in range(count))


def steps_shown(finding: Finding, noun: str) -> list[str]:
    """Return a legend line on how many steps (named `noun`) a table shows, in a list that is empty if it shows all."""
    number = len(finding.stacked)
    return [] if number <= MAX_ROWS else [f"{MAX_ROWS} of {counted(number, noun)} are shown; --json and --out have all"]
