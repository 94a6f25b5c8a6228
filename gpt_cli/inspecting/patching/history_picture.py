"""What patches recover by step as a picture, below the metric of both prompts."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpt_cli.callbacks import Notify, ignored
from gpt_cli.drawing.canvas import as_file, new_figure, rc_context
from gpt_cli.drawing.fonts import fonts_for
from gpt_cli.inspecting.patching.words import parts_by_step, place_of, rows_by_step
from gpt_cli.language import language, say

_NAMED = 3  # places of a panel that have a colour and a name
_COLOURS = ("#0072b2", "#d55e00", "#009e73")  # of Okabe and Ito, which colour-blind readers tell apart
_LIMITS = -0.5, 1.5  # of shares before the last step: where the metric hardly differs yet, they say little


def draw_history(history: Any, notice: Notify = ignored) -> bytes:
    """A png: the metric by step, then of each part a line for each place; those that end farthest from 0 have names."""
    steps, rows = [at["step"] for at in history.steps], [at["rows"] for at in history.steps]
    kinds = parts_by_step(rows[-1])
    words, spoken = fonts_for(language(), notice)
    with rc_context({"font.size": 8, "font.family": words, "axes.spines.top": False, "axes.spines.right": False}):
        figure = new_figure(7.5, 1.6 * (1 + len(kinds)) + 0.4, 130, constrained=True)
        first, *others = figure.subplots(1 + len(kinds), 1, sharex=True)
        for side, colour in (("clean", "#0072b2"), ("corrupt", "#d55e00")):
            first.plot(
                steps,
                [at[f"{side}_metric"] for at in history.steps],
                "o-",
                markersize=2.5,
                color=colour,
                label=say(side, spoken),
            )
        first.set_ylabel(say(history.metric.replace("_", " "), spoken))
        first.legend(frameon=False)
        for axes, part in zip(others, kinds, strict=True):
            lines: dict[str, list[float]] = {}
            for at in rows:
                for row in rows_by_step(at, part):
                    share = np.nan if row["recovered"] is None else row["recovered"]
                    lines.setdefault(place_of(row), []).append(share)
            best = sorted(lines, key=lambda name: -np.nan_to_num(np.abs(lines[name][-1])))[:_NAMED]
            for name, line in lines.items():
                if name not in best:
                    axes.plot(steps, line, color="#b8b8b8", linewidth=0.6)
            for name, colour in zip(best, _COLOURS, strict=False):
                axes.plot(steps, lines[name], color=colour, linewidth=1.4, label=name)
            ends = [line[-1] for line in lines.values() if np.isfinite(line[-1])]
            axes.set_ylim(min(_LIMITS[0], *ends), max(_LIMITS[1], *ends))
            axes.set_ylabel(say(part.replace("_", "-"), spoken))
            axes.legend(frameon=False, loc="upper left", fontsize=7)
        others[-1].set_xlabel(say("step", spoken))
        return as_file(figure, "png")
