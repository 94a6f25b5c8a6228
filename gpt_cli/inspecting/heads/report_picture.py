"""A report on heads as a picture: a small map of layers x heads for each of its columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpt_cli.drawing.canvas import Axes, Figure
from gpt_cli.inspecting.dump import Origin
from gpt_cli.inspecting.heads.columns import COLUMNS, LOSS_CHANGE, Row
from gpt_cli.inspecting.picture import FOOT, draw_panels
from gpt_cli.language import say
from gpt_cli.text.sources import names_of

_MAX_COLUMNS = 4  # maps beside each other
_MAX_NUMBERS = 64  # cells of a map that have their numbers
_HEAD = 0.1  # inches


class Panel(NamedTuple):
    """A map of numbers [layers, heads], or [layers, 1] of whole layers, and the ends of its colours."""

    title: str
    numbers: np.ndarray
    low: float
    high: float
    colours: str = "viridis"
    decimals: int = 2  # of numbers below 1


def draw_report(report: dict[str, Any], notice: Callable[[str], object] = lambda _: None) -> bytes:
    """The report that `gpt heads --json` prints, as a png.

    Shares have colours from 0 to 1, entropy and distance from 0 to their largest, and changes of the loss from blue,
    below 0, to red. A grey cell has no number. `notice` receives a line when no installed font has a character of the
    foot.
    """
    rows: Sequence[Row] = report["heads"]
    layers, heads = (sorted({row[key] for row in rows}) for key in ("layer", "head"))
    panels = _panels(report, layers, heads)
    num_columns = min(_MAX_COLUMNS, len(panels))
    num_rows = -(-len(panels) // num_columns)
    cell = 0.42 if len(rows) <= _MAX_NUMBERS else 0.2
    width = num_columns * (max(1.2, cell * len(heads)) + 1.0)
    height = num_rows * (max(1.0, cell * len(layers)) + 0.65) + FOOT + _HEAD
    origin = Origin(report["checkpoint"], report["step"], ", ".join(names_of(report["text"])))

    def draw_all(figure: Figure, _: set[str], spoken: str) -> None:
        maps = figure.subplots(num_rows, num_columns, squeeze=False).flat
        for axes, panel in zip(maps, panels, strict=False):
            _draw(figure, axes, panel, layers, heads, spoken)
        for axes in maps[len(panels) :]:
            axes.set_axis_off()

    return draw_panels(origin, (width, height), draw_all, notice, head=_HEAD)


def _panels(report: dict[str, Any], layers: Sequence[int], heads: Sequence[int]) -> list[Panel]:
    places = {(layer, head): (i, j) for i, layer in enumerate(layers) for j, head in enumerate(heads)}

    def of(name: str) -> np.ndarray:
        numbers = np.full((len(layers), len(heads)), np.nan)
        for row in report["heads"]:
            numbers[places[row["layer"], row["head"]]] = np.nan if row[name] is None else row[name]
        return numbers

    panels = []
    for name in COLUMNS:
        numbers, unit = of(name), {"entropy": " (nats)", "mean_distance": " (tokens)"}.get(name)
        high = 1.0 if unit is None else max(_largest(numbers), 1e-6)
        panels.append(Panel(name.replace("_", " ") + (unit or ""), numbers, 0, high))
    changes = []
    if LOSS_CHANGE in report["heads"][0]:
        changes.append(("loss change without it (nats)", of(LOSS_CHANGE)))
    if "layers" in report:
        of_layers = np.array([[row[LOSS_CHANGE]] for row in report["layers"]])
        changes.append(("loss change without the layer (nats)", of_layers))
    for title, numbers in changes:
        most = max(_largest(numbers), 1e-6)
        panels.append(Panel(title, numbers, -most, most, "RdBu_r", 3))
    return panels


def _largest(numbers: np.ndarray) -> float:
    """The largest amount that is a number; 0 where none is."""
    return float(np.abs(numbers[~np.isnan(numbers)]).max(initial=0))


def _draw(figure: Figure, axes: Axes, panel: Panel, layers: Sequence[int], heads: Sequence[int], spoken: str) -> None:
    """One map: layers downwards, heads across, the colours beside it."""
    image = axes.imshow(panel.numbers, vmin=panel.low, vmax=panel.high, cmap=panel.colours, aspect="auto")
    axes.set_facecolor("#cccccc")
    axes.set_title(say(panel.title, spoken), fontsize=8)
    axes.set_yticks(range(len(layers)), [f"L{layer}" for layer in layers])
    of_layers = panel.numbers.shape[1] == 1 and len(heads) > 1
    axes.set_xticks([] if of_layers else range(len(heads)), [] if of_layers else [f"H{head}" for head in heads])
    axes.tick_params(length=0, pad=2)
    for side in axes.spines.values():
        side.set_visible(False)
    figure.colorbar(image, cax=axes.inset_axes((1.03, 0, 0.05, 1))).ax.tick_params(labelsize=6)
    if np.isnan(panel.numbers).all():
        axes.text(0.5, 0.5, say("nothing to measure", spoken), ha="center", va="center", transform=axes.transAxes)
    if panel.numbers.size > _MAX_NUMBERS:
        return
    for (row, column), number in np.ndenumerate(panel.numbers):
        if not np.isnan(number):
            red, green, blue, _ = image.cmap(image.norm(number))
            ink = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
            axes.text(column, row, _short(number, panel.decimals), ha="center", va="center", fontsize=6, color=ink)


def _short(number: float, decimals: int) -> str:
    """A number in few characters: .12, 1.2, 12."""
    if abs(number) >= 1:
        return f"{number:.{0 if abs(number) >= 10 else 1}f}"
    return f"{number:.{decimals}f}".replace("0.", ".", 1)
