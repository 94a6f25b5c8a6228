"""Figure, a measured quantity with named axes, and functions that make tables and plots of it. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np

from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.common.drawing.panels import Curves, HeatMap, PlotLine
from gpt_cli.common.tables import Rows

Scale = Literal["amount", "share", "rank", "change", "signed share"]
# the narrowest range of colours of each scale, so that noise stays pale; a scale that begins below 0 is symmetric
_ENDS: Mapping[Scale, tuple[float, float]] = {
    "amount": (0, 1e-6),
    "share": (0, 1),
    "rank": (1, 10),
    "change": (-0.01, 0.01),
    "signed share": (-1, 1),
}


@dataclass(frozen=True, eq=False)
class Figure:
    """A measured quantity: an array `values` (NaN: not measured) with named axes; `coords` maps axes to labels."""

    name: str
    coords: Mapping[str, Sequence[Any]]  # the axes, such as step part layer head position, and the labels along each
    values: np.ndarray
    error: np.ndarray | None = None  # one standard error of each value
    unit: str = ""
    scale: Scale = "amount"

    @classmethod
    def of_rows(cls, rows: Sequence[Row], name: str, *axes: str, key: str = "", **more: Any) -> Figure:
        """Build the figure (measured quantity) `name` from rows, one row per value; `more` sets fields such as `unit`.

        A row maps `key` (default: `name`) to the value, each of `axes` to a label, and, if measured, f"{name}_error" to
        the standard error. Values without a row are NaN.
        """
        coords = {axis: sorted({row[axis] for row in rows}) for axis in axes}
        both = np.full((2, *map(len, coords.values())), np.nan)
        for row in rows:
            index = (slice(None), *(labels.index(row[axis]) for axis, labels in coords.items()))
            both[index] = row[key or name], row.get(f"{name}_error")  # None is NaN
        return cls(name, coords, both[0], both[1] if f"{name}_error" in rows[0] else None, **more)

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes; empty for a single number."""
        return (*self.coords,)

    @property
    def title(self) -> str:
        """The name and the unit of the measured quantity, as a title."""
        return self.name.replace("_", " ") + (f" ({self.unit})" if self.unit else "")

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest value of the figure's colour scale."""
        low, high = _ENDS[self.scale]
        most = max(high, float(np.nanmax(np.abs(self.values), initial=0)))
        return (-most if low < 0 else low), most

    def changed(self, change: Callable[[np.ndarray], np.ndarray], coords: Mapping[str, Sequence[Any]]) -> Figure:
        """Return a figure with `change` applied to values and errors, and with the axes and labels `coords`."""
        error = None if self.error is None else change(self.error)
        return replace(self, values=change(self.values), error=error, coords=coords)

    def at(self, **places: Any) -> Figure:
        """Select a label of an axis, which removes this axis, or a list of labels: `at(part="head", layer=[0, 1])`."""
        figure = self
        for axis, label in places.items():
            labels, number = [*figure.coords[axis]], figure.axes.index(axis)
            index = [labels.index(each) for each in label] if isinstance(label, list) else labels.index(label)
            left = {axis: label} if isinstance(label, list) else {}
            coords = {name: left.get(name, of_axis) for name, of_axis in figure.coords.items() if name != axis or left}
            figure = figure.changed(partial(np.take, indices=index, axis=number), coords)
        return figure

    def over(self, *axes: str) -> Figure:
        """Return the figure with its axes in the order `axes`."""
        order = [self.axes.index(axis) for axis in axes]
        return self.changed(partial(np.transpose, axes=order), {axis: self.coords[axis] for axis in axes})

    def by_place(self, *axes: str) -> Figure:
        """Return the figure with the adjacent `axes` merged into one axis, named `place`, with labels such as L0 H1."""
        names = [" ".join(labels) for labels in product(*(names_along(axis, self.coords[axis]) for axis in axes))]
        first, shape = self.axes.index(axes[0]), self.values.shape
        flat = (*shape[:first], len(names), *shape[first + len(axes) :])
        coords = {axis: labels for axis, labels in self.coords.items() if axis not in axes[1:]}
        joined = {"place" if axis == axes[0] else axis: coords[axis] for axis in coords} | {"place": names}
        return self.changed(lambda part: part.reshape(flat), joined)


def names_along(axis: str, labels: Iterable[Any]) -> list[str]:
    """Return the labels of an axis as text: L0 for layer 0, H3 for head 3; labels of other axes stay as they are."""
    letter = {"layer": "L", "head": "H"}.get(axis, "")
    return [f"{letter}{label}" for label in labels]


def number_of(value: Any) -> Any:
    """Convert a number of an array to a Python number for JSON; NaN becomes None."""
    number = value.item()
    return None if number != number else number


def cell(number: float | None, error: float | None = None, decimals: int = 2, *, sign: str = "") -> str:
    """Format a number and its error, if any: 0.12 ±0.03; with `sign` "+", +0.12 ±0.03; for None or NaN, a dash."""
    if number is None or number != number:
        return "-"
    text = f"{number:{sign}z,.{decimals}f}"
    return text if error is None or error != error else f"{text} ±{error:,.{decimals}f}"


def cell_at(figure: Figure, index: tuple[int, ...] = (), decimals: int = 2) -> str:
    """Format one value of a measured array, at `index`, and its error, as a table cell."""
    return cell(figure.values[index], None if figure.error is None else figure.error[index], decimals)


def cells(figure: Figure, decimals: int = 2, *, with_error: bool = True) -> list[str]:
    """Format all values of a measured array, with errors, as table cells, in the order of its axes."""
    figure = figure if with_error else replace(figure, error=None)
    return [cell_at(figure, index, decimals) for index in np.ndindex(figure.values.shape)]


def matrix(heading: str, down: Sequence[str], figure: Figure, max_columns: int, decimals: int = 2) -> Rows:
    """Tabulate a 2-D array: row names `down` below `heading`, then at most `max_columns` evenly spaced columns."""
    across = names_along(figure.axes[1], figure.coords[figure.axes[1]])
    shown = spaced(len(across), max_columns)
    rows = ((name, *(cell_at(figure, (row, column), decimals) for column in shown)) for row, name in enumerate(down))
    return [(heading, *(across[column] for column in shown)), *rows]


def spaced(number: int, fitting: int) -> list[int]:
    """Select at most `fitting` of the indices 0 to number - 1, evenly spaced; the last index is always selected."""
    count = min(number, max(1, fitting))
    return sorted(number - 1 - n * number // count for n in range(count))


def heat_map(
    figure: Figure,
    title: str = "",
    names: Mapping[str, Sequence[str]] | None = None,
    ends: tuple[float, float] | None = None,
    **style: Any,
) -> HeatMap:
    """Return a heat map of a measured array: its first axis runs downwards; its second axis, if any, runs across.

    `names` maps axes to labels that replace theirs; `ends` replaces the range of colours; `style` sets HeatMap fields.
    """
    if len(figure.axes) == 1:
        figure = figure.changed(lambda part: part[:, None], {**figure.coords, "": [""]})
    labels = [(names or {}).get(axis) or names_along(axis, of_axis) for axis, of_axis in figure.coords.items()]
    sides = [axis if axis in ("layer", "head") else "" for axis in figure.axes]
    style = {"decimals": 3 if figure.scale == "change" else 2, "errors": figure.error, **style}
    low, high = ends or figure.ends
    return HeatMap(title or figure.title, figure.values, labels[0], labels[1], low, high, (sides[0], sides[1]), **style)


def curve(figure: Figure, label: str, **style: Any) -> PlotLine:
    """Return a measured 1-D array as a line of a plot; `label` is for the legend, `style` for matplotlib."""
    ((_, across),) = figure.coords.items()
    return PlotLine(label, across, figure.values, figure.error, style)


def named_curves(
    figure: Figure, title: str, named: Mapping[str, Mapping[str, Any]], limits: tuple[float, float]
) -> Curves:
    """Return a plot of a measured array [step, place], with a curve for each place, such as the head L0 H1.

    `named` maps the places that the legend names to matplotlib styles; `limits` are the ends of the y axis.
    """
    others = [curve(figure.at(place=each), "") for each in figure.coords["place"] if each not in named]
    lines = [curve(figure.at(place=each), each, **style) for each, style in named.items()]
    return Curves(title, [*others, *lines], limits=limits)


def farthest(figure: Figure, most: int, least: float = 0) -> list[str]:
    """Return up to `most` places, such as the head L0 H1, whose largest |value| is at least `least`, largest first."""
    others = tuple(n for n, axis in enumerate(figure.axes) if axis != "place")
    reach = np.where(np.isnan(figure.values), -np.inf, np.abs(figure.values)).max(axis=others)
    order = np.argsort(-reach, kind="stable")[:most].tolist()
    return [figure.coords["place"][at] for at in order if reach[at] >= least]
