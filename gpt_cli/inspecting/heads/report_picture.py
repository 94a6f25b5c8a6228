"""A report on heads as a picture: a small map of layers x heads for each of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpt_cli.callbacks import Notify, ignored
from gpt_cli.drawing.canvas import Figure
from gpt_cli.drawing.labels import Origin
from gpt_cli.drawing.panels import CELLS, FOOT, HeatMap, draw_map, draw_panels
from gpt_cli.inspecting.heads.columns import COLUMNS, LOSS_CHANGE, Row
from gpt_cli.text.sources import names_of

_MAX_COLUMNS = 4  # maps beside each other
_FEW = 64  # cells of a map that are large
_LEAST_CHANGE = 0.01  # nats: the colours of a loss change go at least so far, so that noise stays pale


def draw_report(report: dict[str, Any], notice: Notify = ignored, *, kind: str = "png") -> bytes:
    """The report that `gpt heads --json` prints.

    Shares have colours from 0 to 1, entropy and distance from 0 to their largest, and changes of the loss from blue,
    below 0, to red. A grey cell has no number. `notice` receives a line when no installed font has a character of the
    foot.
    """
    rows: Sequence[Row] = report["heads"]
    layers, heads = (sorted({row[key] for row in rows}) for key in ("layer", "head"))
    panels = _panels(report, layers, heads)
    num_columns = min(_MAX_COLUMNS, len(panels))
    num_rows = -(-len(panels) // num_columns)
    cell = 0.42 if len(rows) <= _FEW else 0.2
    width = num_columns * (max(1.2, cell * len(heads)) + 1.1)
    height = num_rows * (max(1.0, cell * len(layers)) + 0.8) + FOOT + 0.1
    origin = Origin(report["checkpoint"], report["step"], ", ".join(names_of(report["text"])))

    def draw_all(figure: Figure, missing: set[str], spoken: str) -> None:
        maps = figure.subplots(num_rows, num_columns, squeeze=False).flat
        for axes, panel in zip(maps, panels, strict=False):
            draw_map(figure, axes, panel, missing, spoken)
        for axes in maps[len(panels) :]:
            axes.set_axis_off()

    errors = CELLS if any(panel.errors is not None and np.isfinite(panel.errors).any() for panel in panels) else ""
    return draw_panels(origin, (width, height), draw_all, notice, kind, errors=errors)


def _panels(report: dict[str, Any], layers: Sequence[int], heads: Sequence[int]) -> list[HeatMap]:
    places = {(layer, head): (i, j) for i, layer in enumerate(layers) for j, head in enumerate(heads)}
    rows, columns = [f"L{layer}" for layer in layers], [f"H{head}" for head in heads]

    def of(name: str) -> np.ndarray:
        numbers = np.full((len(layers), len(heads)), np.nan)
        for row in report["heads"]:
            numbers[places[row["layer"], row["head"]]] = row[name]  # None is NaN
        return numbers

    panels = []
    for name in COLUMNS:
        numbers, unit = of(name), {"entropy": " (nats)", "mean_distance": " (tokens)"}.get(name)
        high = 1.0 if unit is None else max(_largest(numbers), 1e-6)
        panels.append(HeatMap(name.replace("_", " ") + (unit or ""), numbers, rows, columns, 0, high))

    def change(title: str, across: list[str], side: str, numbers: np.ndarray, errors: np.ndarray) -> HeatMap:
        most, sides = max(_largest(numbers), _LEAST_CHANGE), ("layer", side)
        return HeatMap(title, numbers, rows, across, -most, most, "RdBu_r", sides, errors, decimals=3)

    keys = (LOSS_CHANGE, f"{LOSS_CHANGE}_error")
    if LOSS_CHANGE in report["heads"][0]:
        panels.append(change("loss change without it (nats)", columns, "head", *map(of, keys)))
    if "layers" in report:
        of_layers = (np.array([[row[key]] for row in report["layers"]], dtype=float) for key in keys)
        panels.append(change("loss change without the layer (nats)", [""], "", *of_layers))
    return panels


def _largest(numbers: np.ndarray) -> float:
    """The largest amount that is a number; 0 where none is."""
    return float(np.abs(numbers[~np.isnan(numbers)]).max(initial=0))
