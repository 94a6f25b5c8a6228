"""What patches recover by step as a picture, below the metric of both prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpt_cli.callbacks import Notify, ignored
from gpt_cli.drawing.canvas import Axes, Figure
from gpt_cli.drawing.labels import Origin
from gpt_cli.drawing.panels import BANDS, GREY, draw_curve, draw_panels
from gpt_cli.inspecting.heads.columns import Row
from gpt_cli.inspecting.patching.words import parts_by_step, place_of, rows_by_step
from gpt_cli.language import say

_NAMED = 3  # places of a panel that have a colour and a name
_LIMITS = -0.5, 1.5  # of shares before the last step: where the metric hardly differs yet, they say little


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
        others[-1].set_xlabel(say("step", spoken))

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
    axes.plot(steps, np.delete(shares, best, axis=1), color=GREY, linewidth=0.6)
    for place in best:
        style = {"linewidth": 1.4, "label": place_of(rows[-1][place])}
        draw_curve(axes, steps, shares[:, place], errors[:, place], band=True, **style)
    axes.set_ylim(min(_LIMITS[0], *last), max(_LIMITS[1], *last))
    axes.legend(frameon=False, loc="upper left")
