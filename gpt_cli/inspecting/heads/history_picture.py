"""The scores of heads by step as a picture, beside the loss."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpt_cli.callbacks import Notify, ignored
from gpt_cli.drawing.canvas import Axes, Figure
from gpt_cli.drawing.labels import COLOURS, Origin
from gpt_cli.drawing.panels import GREY, draw_panels, spread
from gpt_cli.inspecting.heads.columns import SHARES
from gpt_cli.inspecting.heads.report_tables import name_of
from gpt_cli.inspecting.snapshots import Losses
from gpt_cli.language import say

_NUM_NAMED = 3  # heads of a panel that have a colour and a name
_LEAST = 0.1  # the share that a head must reach for that
_STROKES = ("-", "--", ":")  # more heads than colours have other strokes
_PANEL = 1.35  # inches


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
    strokes = [(colour, stroke) for stroke in _STROKES for colour in COLOURS]
    drawn = dict(zip(dict.fromkeys(head for heads in named.values() for head in heads), strokes, strict=False))
    heights = [1.4] + [1.0] * len(measured)

    def draw_all(figure: Figure, _: set[str], spoken: str) -> None:
        panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        _draw_losses(panels[0], history["steps"], losses, spoken)
        for axes, (name, lines) in zip(panels[1:], measured.items(), strict=True):
            _draw_scores(axes, steps, lines, {head: drawn[head] for head in named[name]})
            axes.set_ylabel("\n".join(textwrap.wrap(say(name.replace("_", " "), spoken), 10)))
        panels[-1].set_xlabel(say("step", spoken))
        panels[0].set_xlim(0, steps[-1])

    origin = Origin(history["run"], steps[-1], history["prompt"])
    return draw_panels(origin, (7.5, _PANEL * sum(heights) + 0.8), draw_all, notice, kind)


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
            axes.plot(steps, line, color=GREY, linewidth=0.6, zorder=1)
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
