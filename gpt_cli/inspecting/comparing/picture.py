"""How two models differ as a picture: their losses, and maps and curves of what changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpt_cli.callbacks import Notify, ignored
from gpt_cli.drawing.canvas import Axes, Figure
from gpt_cli.drawing.fonts import fonts_for
from gpt_cli.inspecting.comparing.request import OF_BLOCKS
from gpt_cli.inspecting.dump import Origin
from gpt_cli.inspecting.picture import draw_panels
from gpt_cli.language import language, say
from gpt_cli.text.sources import names_of

_HEIGHT, _PANEL = 2.8, 2.3  # inches


def draw_comparison(report: dict[str, Any], notice: Notify = ignored) -> bytes:
    """What `gpt compare --json` prints, as a png; `notice` receives a line when no installed font has a character."""
    first, second = report["runs"]
    of_first = say(f"{first['run']}, step {first['step']:,}", fonts_for(language(), ignored)[1])
    origin = Origin(f"{of_first}; {second['run']}", second["step"], ", ".join(names_of(report["text"])))
    of_blocks = [row for row in report["weights"] if row["layer"] is not None]
    maps = [name for name in ("attention_change", "write_change") if any(r[name] is not None for r in report["heads"])]
    num_panels = 1 + len(maps) + bool(of_blocks)

    def draw_all(figure: Figure, _: set[str], spoken: str) -> None:
        panels = list(figure.subplots(1, num_panels, squeeze=False)[0])
        _draw_losses(panels[0], report, spoken)
        for axes, name in zip(panels[1:], maps, strict=False):
            _draw_map(figure, axes, report["heads"], name, spoken)
        if of_blocks:
            _draw_weights(panels[-1], of_blocks, spoken)

    return draw_panels(origin, (_PANEL * num_panels + 0.4, _HEIGHT), draw_all, notice)


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
