"""What patches recover as a picture: maps of layers by positions and by heads, or curves by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpt_cli.attention_maps.head_metrics import Row, head_label
from gpt_cli.common.drawing.canvas import Axes, Figure
from gpt_cli.common.drawing.panels import (
    BANDS,
    CELLS,
    FOOT,
    HeatMap,
    draw_curve,
    draw_lines,
    draw_map,
    draw_panels,
    label_steps,
)
from gpt_cli.common.drawing.token_labels import COLOURS, Origin, label_of
from gpt_cli.common.host import Notify, ignored
from gpt_cli.common.language import say
from gpt_cli.tools.interpret.patching.report import MOST_TOKENS, parts_by_step, rows_by_step

_HEADS = 12  # of the map of heads by positions: those with the largest shares, above or below 0
_LETTERS = 8
_NAMED = 3  # places of a panel by step that have a colour and a name
_LIMITS = -0.5, 1.5  # of shares before the last step: where the metric hardly differs yet, they say little
_TITLES = {
    "residual": "residual stream after a block",
    "attention": "output of attention",
    "feed_forward": "output of the feed-forward",
    "head": "output of heads, all positions",
    "heads": "output of the strongest heads",
    "path": "share of the edge",
}


def draw_patches(report: dict[str, Any], notice: Notify = ignored, *, kind: str = "png") -> bytes:
    """The report that `gpt patch --json` prints: red above 0, blue below, white at 0.

    It shows the shares, or the estimates where these are alone.
    All maps have the same colours. `notice` receives a line when no installed font has a character.
    """
    figure = "recovered" if report["rows"][0]["recovered"] is not None else "estimate"
    most = max(1.0, *(abs(row[figure]) for row in report["rows"]))
    panels = list(_panels(report, figure, most))
    about = report["pairs"]["file"] if "pairs" in report else f"{report['clean']} / {report['corrupt']}"
    origin = Origin(report["checkpoint"], report["step"], about)
    labels = "".join(label for panel in panels for label in (*panel.rows, *panel.columns)).replace("\n", "")
    heights = [0.19 * len(panel.rows) + 1.0 for panel in panels]
    width = max(4.5, max(0.3 * len(panel.columns) for panel in panels) + 1.8)

    def draw_all(drawn: Figure, missing: set[str], spoken: str) -> None:
        all_axes = drawn.subplots(len(panels), 1, squeeze=False, height_ratios=heights).flat
        for axes, panel in zip(all_axes, panels, strict=True):
            if "path" in report:  # whose rows are queries, keys and values
                panel = panel._replace(rows=[say(row, spoken) for row in panel.rows])
            draw_map(drawn, axes, panel, missing, spoken)
            turned = max((len(line) for label in panel.columns for line in label.split("\n")), default=0) > 5
            axes.tick_params(axis="x", rotation=90 if turned else 0)

    errors = CELLS if any(row["recovered_error"] is not None for row in report["rows"]) else ""
    size = width, sum(heights) + FOOT
    return draw_panels(origin, size, draw_all, notice, kind, labels=labels, errors=errors)


def _panels(report: dict[str, Any], figure: str, most: float) -> Iterator[HeatMap]:
    """A map for each part; of heads one by layer, and one of the strongest by position."""
    positions = sorted({row["position"] for row in report["rows"] if row["position"] is not None})
    reached = {row["position"] for row in report["rows"] if row["position"] is not None and row[figure]}
    positions = [place for place in positions if place >= min(reached, default=0)][-MOST_TOKENS:]
    names = {place: _label(report, place) for place in positions}

    def panel(title: str, rows: Sequence[Row], row_of: Any, column_of: Any, columns: list[str]) -> HeatMap:
        labels = list(dict.fromkeys(map(row_of, rows)))
        numbers = np.full((len(labels), len(columns)), np.nan)
        errors = numbers.copy()
        for row in rows:
            at = labels.index(row_of(row)), columns.index(column_of(row))
            numbers[at], errors[at] = row[figure], row["recovered_error"]  # None is NaN
        sides = "head" if title == "heads" else "" if title == "path" else "layer", "head" if title == "head" else ""
        return HeatMap(_TITLES[title], numbers, labels, columns, -most, most, "RdBu_r", sides, errors)

    for part in dict.fromkeys(row["part"] for row in report["rows"]):
        of_part = [row for row in report["rows"] if row["part"] == part]
        placed = [row for row in of_part if row["position"] in names]
        together = [row for row in of_part if row["position"] is None]
        row_of = (lambda row: row["input"]) if part == "path" else head_label
        if part == "head":
            heads = list(dict.fromkeys(f"H{row['head']}" for row in together))
            yield panel("head", together, lambda row: f"L{row['layer']}", lambda row: f"H{row['head']}", heads)
            placed.sort(key=lambda row: -abs(row[figure]))
            best = [*dict.fromkeys(map(head_label, placed))][:_HEADS]
            placed = [row for name in best for row in placed if head_label(row) == name]
        if placed:
            title = "heads" if part == "head" else part
            yield panel(title, placed, row_of, lambda row: names[row["position"]], list(names.values()))
        elif part != "head":
            yield panel(part, together, row_of, lambda _: "", [""])


def _label(report: dict[str, Any], place: int) -> str:
    """A position and its tokens, one below the other where the prompts differ; no two are the same."""
    clean, corrupt = (report["tokens"][place][key] for key in ("clean", "corrupt"))
    tokens = [label_of(token, _LETTERS) for token in dict.fromkeys((clean, corrupt)) if token is not None]
    return "\n".join([str(place), *tokens])


def draw_history(history: dict[str, Any], notice: Notify = ignored, *, kind: str = "png") -> bytes:
    """The metric by step, then of each part a line for each place; those that end farthest from 0 have names."""
    steps, rows = [at["step"] for at in history["steps"]], [at["rows"] for at in history["steps"]]
    kinds = parts_by_step(rows[-1])
    about = history["pairs"]["file"] if "pairs" in history else f"{history['clean']} / {history['corrupt']}"

    def draw_all(figure: Figure, _: set[str], spoken: str) -> None:
        first, *others = figure.subplots(1 + len(kinds), 1, sharex=True)
        for side in ("clean", "corrupt"):
            metric = [at[f"{side}_metric"] for at in history["steps"]]
            draw_curve(first, steps, metric, marker="o", label=say(side, spoken))
        first.set_ylabel(say(history["metric"].replace("_", " "), spoken))
        first.legend(frameon=False)
        for axes, part in zip(others, kinds, strict=True):
            _draw_part(axes, steps, [rows_by_step(at, part) for at in rows])
            axes.set_ylabel(say(part.replace("_", "-"), spoken))
        label_steps(others[-1], spoken)

    size = 7.5, 1.6 * (1 + len(kinds)) + 0.6
    errors = BANDS if any(row["recovered_error"] is not None for row in rows[-1]) else ""
    return draw_panels(Origin(history["run"], steps[-1], about), size, draw_all, notice, kind, errors=errors)


def _draw_part(axes: Axes, steps: Sequence[int], rows: Sequence[Sequence[Row]]) -> None:
    """The share of each place at each step."""
    shares, errors = (
        np.array([[row[key] for row in at] for at in rows], float) for key in ("recovered", "recovered_error")
    )
    last = np.nan_to_num(shares[-1])
    best = sorted(range(len(last)), key=lambda place: -abs(last[place]))[:_NAMED]
    names = list(map(head_label, rows[-1]))
    lines, bands = (dict(zip(names, numbers.T, strict=True)) for numbers in (shares, errors))
    draw_lines(axes, steps, lines, {names[place]: {"color": COLOURS[n]} for n, place in enumerate(best)}, bands)
    axes.set_ylim(min(_LIMITS[0], *last), max(_LIMITS[1], *last))
