"""Studies as pictures."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gpt_cli.explaining.report import Label, Note, Report, Step
from gpt_cli.explaining.words import say
from gpt_cli.inspecting.picture import find_fonts


def plot(study: str, report: Report, language: str, *, kind: str, notice: Callable[[str], object]) -> bytes:
    """A picture, png or svg: curves of the scaling study, else a map of each step.

    In English where no installed font has the characters of Chinese; `notice` is told.
    """
    fonts = ["DejaVu Sans"]
    if language == "zh":
        fonts, missing = find_fonts(set("".join(_texts(report, "zh"))))
        if missing:
            language = "en"
            notice("no installed font has Chinese; the picture is in English (Debian: apt install fonts-noto-cjk)")
    # names of parts of an svg that are no random numbers, so that the same study gives the same bytes
    with matplotlib.rc_context({"font.family": fonts, "font.size": 8, "svg.hashsalt": "gpt"}):
        figure = _curves(report.steps[0], language) if study == "scaling" else _maps(report.steps, language)
        figure.suptitle(say(report.title, language))
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def _texts(report: Report, language: str) -> list[str]:
    labels: list[Label] = [report.title]
    for step in report.steps:
        labels += [step.title or Note(step.name), *step.rows, *step.columns]
    return [say(label, language) for label in labels]


def _curves(step: Step, language: str) -> Figure:
    """Each fact against K, without and with the division."""
    figure = Figure(figsize=(9, 3.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    sizes = [float(str(row).removeprefix("K = ")) for row in step.rows]
    for place, axes in enumerate(figure.subplots(1, 3)):
        for column, style in ((2 * place, "o--"), (2 * place + 1, "s-")):
            axes.plot(sizes, step.numbers[:, column], style, label=say(step.columns[column], language))
        axes.set_xscale("log", base=2)
        axes.set_xlabel("K")
        axes.set_ylim(bottom=0)
        axes.legend()
    return figure


def _maps(steps: Sequence[Step], language: str) -> Figure:
    """A map of each step, with its numbers."""
    across = 2
    down = -(-len(steps) // across)
    figure = Figure(figsize=(10, 3.2 * down), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    places = list(np.ravel(figure.subplots(down, across)))
    for step, axes in zip(steps, places, strict=False):
        _map(axes, step, language)
    for axes in places[len(steps) :]:
        axes.set_axis_off()
    return figure


def _map(axes: Axes, step: Step, language: str) -> None:
    largest = max(1.0, float(step.numbers.max()))
    axes.imshow(step.numbers, cmap="viridis", vmin=0, vmax=largest, aspect="auto")
    for row, numbers in enumerate(step.numbers):
        for column, number in enumerate(numbers):
            ink = "black" if number > largest / 2 else "white"
            axes.text(column, row, f"{number:.2f}", ha="center", va="center", fontsize=7, color=ink)
    axes.set_xticks(range(len(step.columns)), [say(label, language) for label in step.columns])
    axes.set_yticks(range(len(step.rows)), [say(label, language) for label in step.rows])
    axes.set_title(say(step.title or Note(step.name), language), fontsize=8)
    axes.tick_params(length=0)
