"""Make panels of pictures from figures: heat maps of two axes, and curves along one axis. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpt_cli.common.drawing.panels import Curves, HeatMap, PlotLine
from gpt_cli.tools.interpret.figure import Figure, names_along


def heat_map(
    figure: Figure,
    title: str = "",
    names: Mapping[str, Sequence[str]] | None = None,
    ends: tuple[float, float] | None = None,
    **style: Any,
) -> HeatMap:
    """Return a heat map of a figure: its first axis runs downwards; its second axis, if any, runs across.

    `names` replaces the labels of some axes; `ends` is the range of the colour scale, None: that of the figure.
    """
    if len(figure.axes) == 1:
        figure = figure.changed(lambda part: part[:, None], {**figure.coords, "": [""]})
    labels = [(names or {}).get(axis) or names_along(axis, of_axis) for axis, of_axis in figure.coords.items()]
    sides = [axis if axis in ("layer", "head") else "" for axis in figure.axes]
    style = {"decimals": 3 if figure.scale == "change" else 2, "errors": figure.error, **style}
    low, high = ends or figure.ends
    return HeatMap(title or figure.title, figure.values, labels[0], labels[1], low, high, (sides[0], sides[1]), **style)


def curve(figure: Figure, label: str, **style: Any) -> PlotLine:
    """Return a line that plots a figure with one axis."""
    ((_, across),) = figure.coords.items()
    return PlotLine(label, across, figure.values, figure.error, style)


def named_curves(
    figure: Figure, title: str, named: Mapping[str, Mapping[str, Any]], limits: tuple[float, float]
) -> Curves:
    """Return a panel with a line per place of a figure [step, place], labelled if in `named`; y is in `limits`."""
    others = [curve(figure.at(place=each), "") for each in figure.coords["place"] if each not in named]
    lines = [curve(figure.at(place=each), each, **style) for each, style in named.items()]
    return Curves(title, [*others, *lines], limits=limits)


def farthest(figure: Figure, most: int, least: float = 0) -> list[str]:
    """Return up to `most` labels of a figure's axis place, the largest |value| first, if it is not below `least`."""
    others = tuple(n for n, axis in enumerate(figure.axes) if axis != "place")
    measured = np.where(np.isnan(figure.values), -np.inf, np.abs(figure.values))
    reach = measured.max(axis=others)
    order = np.argsort(-reach, kind="stable")[:most].tolist()
    return [figure.coords["place"][at] for at in order if reach[at] >= least]
