"""How two models differ as a picture: the difference of their losses, and maps and curves of what changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpt_cli.common.drawing.canvas import Axes, Figure
from gpt_cli.common.drawing.fonts import fonts_for
from gpt_cli.common.drawing.panels import BARS, HeatMap, draw_curve, draw_map, draw_panels
from gpt_cli.common.drawing.token_labels import Origin
from gpt_cli.common.host import Notify, ignored
from gpt_cli.common.language import language, say
from gpt_cli.common.units import with_error
from gpt_cli.text.sources import source_names
from gpt_cli.tools.interpret.compare.request import OF_BLOCKS

_HEIGHT, _PANEL = 3.0, 2.3  # inches


def draw_comparison(report: dict[str, Any], notice: Notify = ignored, *, kind: str = "png") -> bytes:
    """What `gpt compare --json` prints; `notice` receives a line when no installed font has a character."""
    first, second = report["runs"]
    of_first = say(f"{first['run']}, step {first['step']:,}", fonts_for(language(), ignored)[1])
    origin = Origin(f"{of_first}; {second['run']}", second["step"], ", ".join(source_names(report["text"])))
    of_blocks = [row for row in report["weights"] if row["layer"] is not None]
    maps = [name for name in ("attention_change", "write_change") if any(r[name] is not None for r in report["heads"])]
    num_panels = 2 + len(maps) + bool(of_blocks)

    def draw_all(figure: Figure, missing: set[str], spoken: str) -> None:
        panels = list(figure.subplots(1, num_panels, squeeze=False)[0])
        _draw_difference(panels[0], report["difference"], spoken)
        _draw_losses(panels[1], report, spoken)
        for axes, name in zip(panels[2:], maps, strict=False):
            draw_map(figure, axes, _map_of(report["heads"], name), missing, spoken)
        if of_blocks:
            _draw_weights(panels[-1], of_blocks, spoken)

    return draw_panels(origin, (_PANEL * num_panels + 0.4, _HEIGHT), draw_all, notice, kind, errors=BARS)


def _draw_difference(axes: Axes, difference: dict[str, Any], spoken: str) -> None:
    """By how much the second differs from the first on the same text, beside no difference."""
    value, error = difference["value"], difference["error"]
    axes.axhline(0, color="#777777", linewidth=0.8)
    draw_curve(axes, [0], [value], [error], fmt="o", markersize=4, capsize=3)
    axes.set_xlim(-1, 1)
    axes.set_xticks([0], [with_error(value, error, signed=True)])
    axes.set_title(say(f"second - first ({difference['unit']})", spoken), fontsize=8)


def _draw_losses(axes: Axes, report: dict[str, Any], spoken: str) -> None:
    """What the text costs each model."""
    same = report["divergence"] is not None
    key, unit = ("loss", "loss (nats/token)") if same else ("bits_per_byte", "bits per byte")
    errors = [one["loss_error"] if same else None for one in report["runs"]]
    draw_curve(axes, [0, 1], [one[key] for one in report["runs"]], errors, fmt="o", markersize=4, capsize=3)
    axes.set_xticks([0, 1], [say(word, spoken) for word in ("first", "second")])
    axes.set_xlim(-0.5, 1.5)
    axes.set_title(say(unit, spoken), fontsize=8)


def _map_of(heads: list[Any], name: str) -> HeatMap:
    """A change of each head; both are shares, of which that of writes may be above 1."""
    shape = [1 + max(row[key] for row in heads) for key in ("layer", "head")]
    changes = np.full(shape, np.nan)
    for row in heads:
        changes[row["layer"], row["head"]] = row[name]  # None is NaN
    rows, columns = ([f"{letter}{n}" for n in range(number)] for letter, number in zip("LH", shape, strict=True))
    return HeatMap(name.replace("_", " "), changes, rows, columns, high=max(1.0, np.nanmax(changes)), most=12)


def _draw_weights(axes: Axes, rows: list[Any], spoken: str) -> None:
    """The relative change of each part of the blocks, by layer."""
    for part in OF_BLOCKS:
        points = [(row["layer"], row["change"]) for row in rows if row["part"] == part and row["change"] is not None]
        if points:
            draw_curve(axes, *zip(*points, strict=True), marker="o", markersize=3, label=say(part, spoken))
    axes.set_xlabel(say("layer", spoken))
    layers = sorted({row["layer"] for row in rows})
    axes.set_xticks(layers[:: -(-len(layers) // 8)])
    axes.set_ylim(bottom=0)
    axes.set_title(say("change of the weights", spoken), fontsize=8)
    axes.legend(frameon=False, fontsize=6)
