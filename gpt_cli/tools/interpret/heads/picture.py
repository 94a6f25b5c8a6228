"""Heads as a picture: a small map of layers x heads for each column of a report, or their scores by step."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpt_cli.attention_maps.head_metrics import COLUMNS, LOSS_CHANGE, SHARES, Row, head_label
from gpt_cli.attention_maps.snapshots import Losses
from gpt_cli.common.drawing.canvas import Axes, Figure
from gpt_cli.common.drawing.panels import CELLS, FOOT, HeatMap, draw_lines, draw_map, draw_panels, label_steps
from gpt_cli.common.drawing.token_labels import COLOURS, Origin
from gpt_cli.common.host import Notify, ignored
from gpt_cli.common.language import say
from gpt_cli.text.sources import source_names

_MAX_COLUMNS = 4  # maps beside each other
_FEW = 64  # cells of a map that are large
_LEAST_CHANGE = 0.01  # nats: the colours of a loss change go at least so far, so that noise stays pale
_NUM_NAMED = 3  # heads of a panel by step that have a colour and a name
_LEAST = 0.1  # the share that a head must reach for that
_STROKES = ("-", "--", ":")  # more heads than colours have other strokes
_PANEL = 1.35  # inches


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
    origin = Origin(report["checkpoint"], report["step"], ", ".join(source_names(report["text"])))

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


def draw_history(
    history: Mapping[str, Any], losses: Losses | None, notice: Notify = ignored, *, kind: str = "png"
) -> bytes:
    """The loss on top, below it a panel for each share that was measured, with a line for each head.

    The heads that reach most have a name, and a colour that is theirs in all panels, which share the axis of steps.
    `losses` are all that metrics record, None where those of steps are of the prompt. `notice` receives a line when no
    installed font has a character of the foot.
    """
    steps = [at["step"] for at in history["steps"]]
    scores = {name: _lines(history["steps"], name) for name in SHARES}
    measured = {name: lines for name, lines in scores.items() if np.isfinite([*lines.values()]).any()}
    named = {name: _highest(lines) for name, lines in measured.items()}
    strokes = [{"color": colour, "linestyle": stroke} for stroke in _STROKES for colour in COLOURS]
    drawn = dict(zip(dict.fromkeys(head for heads in named.values() for head in heads), strokes, strict=False))
    heights = [1.4] + [1.0] * len(measured)

    def draw_all(figure: Figure, _: set[str], spoken: str) -> None:
        panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        _draw_losses(panels[0], history["steps"], losses, spoken)
        for axes, (name, lines) in zip(panels[1:], measured.items(), strict=True):
            draw_lines(axes, steps, lines, {head: drawn[head] for head in named[name]})
            axes.set_ylim(-0.02, 1.02)  # so that a line at either end is whole
            axes.set_yticks([0, 0.5, 1])
            axes.set_ylabel("\n".join(textwrap.wrap(say(name.replace("_", " "), spoken), 10)))
        label_steps(panels[-1], spoken)
        panels[0].set_xlim(0, steps[-1])

    origin = Origin(history["run"], steps[-1], history["prompt"])
    return draw_panels(origin, (7.5, _PANEL * sum(heights) + 0.8), draw_all, notice, kind)


def _lines(steps: Sequence[Mapping[str, Any]], column: str) -> dict[str, np.ndarray]:
    """The scores of each head by step, NaN where it has none."""
    found: dict[str, list[float]] = {}
    for at in steps:
        for row in at["heads"]:
            found.setdefault(head_label(row), []).append(np.nan if row[column] is None else row[column])
    return {name: np.array(line) for name, line in found.items()}


def _draw_losses(axes: Axes, steps: Sequence[Mapping[str, Any]], losses: Losses | None, spoken: str) -> None:
    """The loss of batches and of validation; without metrics, that of the snapshots' batches, or of the prompt."""
    of_steps = [(at["step"], at["loss"]) for at in steps]
    last = steps[-1]["step"]
    drawn = [("this prompt", of_steps, "o-", "#777777")]
    if losses is not None:
        drawn = [("training", losses["loss"] or of_steps, "-", "#777777")]
        drawn.append(("validation", losses["validation_loss"], "o-", "black"))
    for label, points, style, colour in drawn:
        points = [(step, loss) for step, loss in points if step <= last]
        if points:
            axes.plot(
                *zip(*points, strict=True), style, label=say(label, spoken), color=colour, linewidth=1, markersize=2.5
            )
    axes.set_ylabel(say("loss (nats/token)", spoken))
    axes.legend(frameon=False, loc="upper right")


def _highest(lines: Mapping[str, np.ndarray]) -> list[str]:
    """The heads that reach most, which have a name."""
    reached = {head: np.nanmax(line, initial=0) for head, line in lines.items()}
    return [head for head in sorted(reached, key=lambda head: -reached[head]) if reached[head] >= _LEAST][:_NUM_NAMED]
