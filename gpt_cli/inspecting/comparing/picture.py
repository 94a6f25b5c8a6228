"""How two models differ as a picture: their losses, and maps and curves of what changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpt_cli.callbacks import Notify, ignored
from gpt_cli.drawing.canvas import Axes, Figure, as_file, new_figure, rc_context
from gpt_cli.drawing.fonts import find_fonts, fonts_for, remark_on_missing
from gpt_cli.drawing.labels import label_of
from gpt_cli.inspecting.comparing.request import OF_BLOCKS
from gpt_cli.inspecting.dump import Origin
from gpt_cli.inspecting.picture import write_origin
from gpt_cli.language import language, say

_FOOT, _HEIGHT, _PANEL = 0.45, 2.8, 2.3  # inches


def draw_comparison(report: dict[str, Any], notice: Notify = ignored) -> bytes:
    """What `gpt compare --json` prints, as a png; `notice` receives a line when no installed font has a character."""
    first, second = report["runs"]
    source = report["text"] if isinstance(report["text"], str) else ", ".join(report["text"])
    words, spoken = fonts_for(language(), notice)
    of_first = say(f"{first['run']}, step {first['step']:,}", spoken)
    origin = Origin(f"{of_first}; {second['run']}", second["step"], source)
    fonts, missing = find_fonts({*label_of(origin.checkpoint + origin.prompt, None)})
    remark_on_missing(missing, notice)
    of_blocks = [row for row in report["weights"] if row["layer"] is not None]
    maps = [name for name in ("attention_change", "write_change") if any(r[name] is not None for r in report["heads"])]
    with rc_context({"font.size": 7, "font.family": [*words, *fonts]}):
        figure = new_figure(_PANEL * (1 + len(maps) + bool(of_blocks)) + 0.4, _HEIGHT, 110)
        figure.set_layout_engine("constrained", rect=(0, _FOOT / _HEIGHT, 1, 1 - (_FOOT + 0.1) / _HEIGHT))
        panels = list(figure.subplots(1, 1 + len(maps) + bool(of_blocks), squeeze=False)[0])
        _draw_losses(panels[0], report, spoken)
        for axes, name in zip(panels[1:], maps, strict=False):
            _draw_map(figure, axes, report["heads"], name, spoken)
        if of_blocks:
            _draw_weights(panels[-1], of_blocks, spoken)
        write_origin(figure, origin, [*fonts, *words], missing, spoken)
        return as_file(figure, "png")


def _draw_losses(axes: Axes, report: dict[str, Any], spoken: str) -> None:
    """What the text costs each model, with two standard errors to both sides where they are known."""
    same = report["divergence"] is not None
    key, unit = ("loss", "loss (nats/token)") if same else ("bits_per_byte", "bits per byte")
    numbers = [one[key] for one in report["runs"]]
    errors = [2 * (one["loss_error"] or 0) if same else 0 for one in report["runs"]]
    axes.errorbar([0, 1], numbers, yerr=errors, fmt="o", markersize=4, capsize=3)
    axes.set_xticks([0, 1], [say(word, spoken) for word in ("first", "second")])
    axes.set_xlim(-0.5, 1.5)
    axes.set_title(say(unit, spoken), fontsize=7)


def _draw_map(figure: Figure, axes: Axes, heads: list[Any], name: str, spoken: str) -> None:
    """Layers upwards, heads across."""
    shape = [1 + max(row[key] for row in heads) for key in ("layer", "head")]
    changes = np.full(shape, np.nan)
    for row in heads:
        changes[row["layer"], row["head"]] = np.nan if row[name] is None else row[name]
    image = axes.imshow(changes, vmin=0, cmap="viridis", aspect="auto", origin="lower")
    for ticks, labels, number in ((axes.set_xticks, "H", shape[1]), (axes.set_yticks, "L", shape[0])):
        every = range(0, number, -(-number // 12))
        ticks(list(every), [f"{labels}{n}" for n in every])
    axes.set_title(say(name.replace("_", " "), spoken), fontsize=7)
    figure.colorbar(image, ax=axes, fraction=0.06, pad=0.03).ax.tick_params(labelsize=6)


def _draw_weights(axes: Axes, rows: list[Any], spoken: str) -> None:
    """The relative change of each part of the blocks, by layer."""
    for part in OF_BLOCKS:
        points = [(row["layer"], row["change"]) for row in rows if row["part"] == part and row["change"] is not None]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=1, label=say(part, spoken))
    axes.set_xlabel(say("layer", spoken))
    layers = sorted({row["layer"] for row in rows})
    axes.set_xticks(layers[:: -(-len(layers) // 8)])
    axes.set_ylim(bottom=0)
    axes.set_title(say("change of the weights", spoken), fontsize=7)
    axes.legend(frameon=False, fontsize=6)
