"""What layers would predict as a picture: a map of layers by tokens, or the curves of a text."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from gpt_cli.common.drawing.canvas import Axes, Figure, LogFormatter, colormaps
from gpt_cli.common.drawing.panels import BANDS, BARS, HeatMap, draw_curve, draw_map, draw_panels, label_steps
from gpt_cli.common.drawing.token_labels import Origin, label_of
from gpt_cli.common.host import Notify, ignored
from gpt_cli.common.language import say
from gpt_cli.text.sources import source_names
from gpt_cli.tools.interpret.lens.request import MEASURES

MOST_TOKENS = 24  # of a map; the last ones of a longer prompt
_LETTERS = 7
_UNITS = {"loss": " (nats)", "divergence": " (nats)"}


def draw_lens(report: dict[str, Any], notice: Notify = ignored, *, kind: str = "png") -> bytes:
    """The report that `gpt lens --json` prints.

    A cell of a map has the likeliest next token, and its colour is the probability. `notice` receives a line when no
    installed font has a character.
    """
    positions = report.get("positions", [])[-MOST_TOKENS:]
    origin = Origin(report["checkpoint"], report["step"], ", ".join(source_names(report["text"])))
    if not positions:
        return draw_panels(origin, (7.0, 2.8), partial(_draw_curves, report), notice, kind, errors=BARS)
    shown = _map_of(report, positions)
    size = max(0.62 * len(positions) + 1.6, 4.0), 0.24 * len(report["layers"]) + 1.5
    cells = np.ndindex(*shown.numbers.shape)
    labels = "".join([*shown.columns, *(shown.text_of(*place) for place in cells if shown.text_of)])

    def draw_all(figure: Figure, missing: set[str], spoken: str) -> None:
        draw_map(figure, figure.subplots(), shown, missing, spoken)

    return draw_panels(origin, size, draw_all, notice, kind, labels=labels)


def _map_of(report: dict[str, Any], positions: list[Any]) -> HeatMap:
    """Layers downwards, tokens across; behind maps where the lens is tuned."""
    title, tuned = "the likeliest next token after each layer, and its probability", ""
    if "tuned" in report:
        title, tuned = "tuned lens: the likeliest next token, and its probability", "tuned_"
    chances = np.array([[row[f"{tuned}token_probability"] for row in each["layers"]] for each in positions]).T
    rows = [f"L{row['layer']}" for row in report["layers"]]
    columns = [label_of(each["token"], _LETTERS) for each in positions]

    def text_of(layer: int, place: int) -> str:
        return label_of(positions[place]["layers"][layer][f"{tuned}token"], _LETTERS)

    return HeatMap(title, chances, rows, columns, sides=("layer", ""), text_of=text_of)


def _draw_curves(report: dict[str, Any], figure: Figure, _: set[str], spoken: str) -> None:
    """For each measure a curve of each lens."""
    layers = [row["layer"] for row in report["layers"]]
    lenses = {"": "logit lens", **({"tuned_": "tuned lens"} if "tuned" in report else {})}
    for axes, name in zip(figure.subplots(1, len(MEASURES)), MEASURES, strict=True):
        for lens, label in lenses.items():
            numbers, errors = ([row[f"{lens}{name}{end}"] for row in report["layers"]] for end in ("", "_error"))
            draw_curve(axes, layers, numbers, errors, marker="o", label=say(label, spoken))
        if name == MEASURES[0] and len(lenses) > 1:
            axes.legend(frameon=False, fontsize=6)
        axes.set_title(say(name + _UNITS.get(name, ""), spoken), fontsize=7)
        axes.set_xlabel(say("layer", spoken))
        axes.set_xticks(layers if len(layers) <= 8 else layers[:: -(-len(layers) // 8)])
        if name == "rank":
            _scale_ranks(axes)


def _scale_ranks(axes: Axes) -> None:
    """A logarithmic scale whose labels are plain numbers, such as 450."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.4)))


def draw_lens_history(history: dict[str, Any], notice: Notify = ignored, *, kind: str = "png") -> bytes:
    """The history that `gpt lens --over-training --json` prints: for each measure a curve of each layer.

    `notice` receives a line when no installed font has a character.
    """
    steps, rows = [at["step"] for at in history["steps"]], history["steps"][-1]["layers"]
    origin = Origin(history["run"], steps[-1], ", ".join(source_names(history["text"])))

    def draw_all(figure: Figure, _: set[str], spoken: str) -> None:
        panels = figure.subplots(1, len(MEASURES))
        for axes, name in zip(panels, MEASURES, strict=True):
            for place, row in enumerate(rows):
                found = [at["layers"][place] for at in history["steps"]]
                numbers, errors = ([each[f"{name}{end}"] for each in found] for end in ("", "_error"))
                colour = colormaps["viridis"](place / max(1, len(rows) - 1) * 0.9)
                style: dict[str, Any] = {"color": colour, "marker": "o", "markersize": 2, "label": f"L{row['layer']}"}
                draw_curve(axes, steps, numbers, errors, band=True, **style)
            axes.set_title(say(name + _UNITS.get(name, ""), spoken), fontsize=7)
            label_steps(axes, spoken)
            if name == "rank" and any(row["rank"] is not None for at in history["steps"] for row in at["layers"]):
                _scale_ranks(axes)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right", frameon=False, fontsize=6)

    has_errors = any(row[f"{name}_error"] is not None for row in rows for name in MEASURES)
    return draw_panels(origin, (7.0, 3.0), draw_all, notice, kind, errors=BANDS if has_errors else "")
