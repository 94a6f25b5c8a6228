"""The scores of heads by step as a picture, beside the loss."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gpt_cli.callbacks import Notify, ignored
from gpt_cli.drawing.canvas import Axes, as_file, font_manager, new_figure, rc_context
from gpt_cli.drawing.fonts import find_fonts, fonts_for, remark_on_missing
from gpt_cli.drawing.labels import label_of
from gpt_cli.inspecting.heads.columns import SHARES
from gpt_cli.inspecting.heads.report_tables import name_of
from gpt_cli.inspecting.picture import known
from gpt_cli.inspecting.snapshots import Losses
from gpt_cli.language import language, say

_NUM_NAMED = 3  # heads of a panel that have a colour and a name
_LEAST = 0.1  # the share that a head must reach for that
# of Okabe and Ito, which colour-blind readers tell apart; more heads than colours have other strokes
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_STROKES = ("-", "--", ":")
_GREY = "#b8b8b8"
_PANEL = 1.35  # inches


def draw_history(history: Mapping[str, Any], losses: Losses | None, notice: Notify = ignored) -> bytes:
    """A png: the loss on top, below it a panel for each share that was measured, with a line for each head.

    The heads that reach most have a name, and a colour that is theirs in all panels, which share the axis of steps.
    `losses` are all that metrics record, None where those of steps are of the prompt. `notice` receives a line when no
    installed font has a character of the title.
    """
    steps = [at["step"] for at in history["steps"]]
    scores = {name: _lines(history["steps"], name) for name in SHARES}
    measured = {name: lines for name, lines in scores.items() if np.isfinite([*lines.values()]).any()}
    words, spoken = fonts_for(language(), notice)
    title = say(f"{label_of(history['run'], 60)}: attention to “{label_of(history['prompt'], 60)}”", spoken)
    fonts, missing = find_fonts(set(title))
    remark_on_missing(missing, notice)
    named = {name: _highest(lines) for name, lines in measured.items()}
    strokes = [(colour, stroke) for stroke in _STROKES for colour in _COLOURS]
    drawn = dict(zip(dict.fromkeys(head for heads in named.values() for head in heads), strokes, strict=False))
    title = known(title, missing)
    heights = [1.4] + [1.0] * len(measured)
    with rc_context({"font.size": 8, "font.family": words, "axes.spines.top": False, "axes.spines.right": False}):
        figure = new_figure(7.5, _PANEL * sum(heights) + 0.5, 130, constrained=True)
        panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
        first, *others = panels[:, 0]
        properties = font_manager.FontProperties(family=fonts, size=9)
        figure.suptitle(title, fontproperties=properties, parse_math=False)
        _draw_losses(first, history["steps"], losses, spoken)
        for axes, (name, lines) in zip(others, measured.items(), strict=True):
            _draw_scores(axes, steps, lines, {head: drawn[head] for head in named[name]})
            axes.set_ylabel("\n".join(textwrap.wrap(say(name.replace("_", " "), spoken), 10)))
        panels[-1, 0].set_xlabel(say("step", spoken))
        first.set_xlim(0, steps[-1])
        return as_file(figure, "png")


def _lines(steps: Sequence[Mapping[str, Any]], column: str) -> dict[str, np.ndarray]:
    """The scores of each head by step, NaN where it has none."""
    found: dict[str, list[float]] = {}
    for at in steps:
        for row in at["heads"]:
            found.setdefault(name_of(row), []).append(np.nan if row[column] is None else row[column])
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


def _draw_scores(
    axes: Axes, steps: Sequence[int], lines: Mapping[str, np.ndarray], named: Mapping[str, tuple[str, str]]
) -> None:
    """A grey line for each head; those with a colour and a stroke are named at their ends."""
    for head, line in lines.items():
        if head not in named:
            axes.plot(steps, line, color=_GREY, linewidth=0.6, zorder=1)
    for head, (colour, stroke) in named.items():
        axes.plot(steps, lines[head], linestyle=stroke, color=colour, linewidth=1.4, zorder=2)
    heights = spread([float(lines[head][-1]) for head in named], 0.13)
    for (head, (colour, _)), height in zip(named.items(), heights, strict=True):
        axes.annotate(
            head,
            (1, height),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            annotation_clip=False,
        )
    axes.set_ylim(-0.02, 1.02)  # so that a line at either end is whole
    axes.set_yticks([0, 0.5, 1])


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Heights from 0 to 1, of which neighbours were pushed apart until any two are a gap apart."""
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    moved = list(heights)
    for _ in range(50):
        for lower, upper in pairwise(order):
            push = max(0.0, (gap - moved[upper] + moved[lower]) / 2)
            moved[lower], moved[upper] = max(0.0, moved[lower] - push), min(1.0, moved[upper] + push)
    return moved
