"""Draw the studies of `gpt explain` as pictures."""

from collections.abc import Sequence

import numpy as np

from gpt_cli.common.drawing.canvas import Axes, Figure, as_file, default_style, find_fonts, fonts_for, remark_on_missing
from gpt_cli.common.host import Notify
from gpt_cli.common.language import say
from gpt_cli.tools.explain.explanation import Explanation, Step, label_text
from gpt_cli.tools.explain.studies import SIZES


def plot(study: str, explanation: Explanation, language: str, *, kind: str, notice: Notify) -> bytes:
    """Return a picture, in the format `kind`, of all steps of an explanation.

    For the study "scaling", the picture has curves and bars, for other studies heat maps with their numbers. If no
    installed font has the Chinese characters, the words are English and `notice` receives a line.
    """
    of_titles, missing = find_fonts({*"".join(step.title for step in explanation.steps)})  # a title may have a path
    remark_on_missing(missing, notice)
    fonts, language = fonts_for(language, notice)
    with default_style({"font.family": [*dict.fromkeys([*fonts, *of_titles])], "font.size": 8}):
        figure = (_scaling if study == "scaling" else _maps)(explanation.steps, language)
        figure.suptitle(say(explanation.title, language))
        return as_file(figure, kind)


def _scaling(steps: Sequence[Step], language: str) -> Figure:
    """Draw the first step as curves over K, without and with division by √K, and the other steps as groups of bars."""
    figure = Figure(figsize=(9.5, 3 * len(steps)), dpi=110, layout="constrained")
    both = [say("undivided", language), say("divided", language)]
    for part, step in zip(figure.subfigures(len(steps), 1, squeeze=False)[:, 0], steps, strict=True):
        part.suptitle(step.title_in(language), fontsize=8, parse_math=False)
        # each fact without and with division: in two columns, or, for normal numbers, in two rows
        num_beside = len(step.columns) // 3
        kinds = both[:num_beside]
        for index, axes in enumerate(part.subplots(1, 3)):
            columns = range(index * num_beside, (index + 1) * num_beside)
            numbers = [step.numbers[:, column] for column in columns]
            if step is steps[0]:
                for of_one, kind, style in zip(numbers, kinds, ("o--", "s-"), strict=True):
                    axes.plot(SIZES, of_one, style, label=kind)
                axes.set_xscale("log", base=2)
                axes.set_xlabel("K")
            else:
                _bars(axes, numbers, kinds, [label_text(row, language) for row in step.rows])
            if num_beside == 2:
                axes.legend(loc="upper center", ncols=2, fontsize=7)
            axes.set_title(label_text(step.columns[columns[0]], language), fontsize=8)
            axes.margins(y=0.25)  # for the legend
            axes.set_ylim(bottom=0)
    return figure


def _bars(axes: Axes, numbers: Sequence[np.ndarray], kinds: Sequence[str], rows: Sequence[str]) -> None:
    width = 0.8 / len(numbers)
    for index, (of_one, kind) in enumerate(zip(numbers, kinds, strict=True)):
        bars = axes.bar(np.arange(len(rows)) + index * width, of_one, width, label=kind)
        axes.bar_label(bars, fmt="%.3g", fontsize=6)
    axes.set_xticks(np.arange(len(rows)) + (len(numbers) - 1) * width / 2, rows)


def _maps(steps: Sequence[Step], language: str) -> Figure:
    """Draw a heat map of each step, two side by side; a map's height grows with its number of rows."""
    pairs = [steps[first : first + 2] for first in range(0, len(steps), 2)]
    heights = [0.8 + 0.36 * max(len(step.rows) for step in pair) for pair in pairs]
    figure = Figure(figsize=(11, 0.4 + sum(heights)), dpi=110, layout="constrained")
    places = figure.subplots(len(pairs), 2, height_ratios=heights, squeeze=False)
    for axes, step in zip(places.flat, steps, strict=False):
        _map(axes, step, language)
    for axes in places.flat[len(steps) :]:
        axes.set_axis_off()
    return figure


def _map(axes: Axes, step: Step, language: str) -> None:
    """Draw a step's numbers as a heat map; colours range from 0 to 1, or to the largest number if it is at most 0.1."""
    columns = [label_text(label, language) for label in step.columns]
    weights = np.where(np.array(columns) == "Σ", np.nan, step.numbers)  # a sum is no weight
    largest = float(np.nanmax(weights))
    top, digits = (1.0, 2) if largest > 0.1 else (largest, 4)
    axes.imshow(weights, cmap="viridis", vmin=0, vmax=top, aspect="auto")
    for (row, column), number in np.ndenumerate(step.numbers):
        ink = "black" if np.isnan(weights[row, column]) or number > 0.43 * top else "white"
        axes.text(column, row, f"{number:.{digits}f}", ha="center", va="center", fontsize=7, color=ink)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(step.rows)), [label_text(label, language) for label in step.rows])
    axes.set_title(step.title_in(language), fontsize=8)
    axes.tick_params(length=0)
