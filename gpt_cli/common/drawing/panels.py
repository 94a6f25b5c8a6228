"""The panels of pictures of reports: maps of numbers, curves with their errors, and a foot that says what was read.

Layers grow downwards in every map, as the lines of a text do. An error is one standard error, and the picture says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpt_cli.common.drawing.canvas import (
    Axes,
    Figure,
    MaxNLocator,
    as_file,
    cycler,
    font_manager,
    new_figure,
    rc_context,
)
from gpt_cli.common.drawing.fonts import find_fonts, fonts_for, remark_on_missing
from gpt_cli.common.drawing.token_labels import COLOURS, Origin, label_of, width_of
from gpt_cli.common.host import Notify
from gpt_cli.common.language import language, say

FOOT = 0.45  # inches, of a picture of panels
BARS, BANDS, CELLS = "bars: ± one standard error", "bands: ± one standard error", "±: one standard error"
GREY = "#b8b8b8"
_MOST_NUMBERS = 64  # cells of a map that have their numbers
_FOOTER_LETTER = 0.05  # inches: about the width of one letter of the foot


def label_steps(axes: Axes, spoken: str) -> None:
    """Label the horizontal axis "step", with ticks at whole steps alone."""
    axes.set_xlabel(say("step", spoken))
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))


class HeatMap(NamedTuple):
    """A map of numbers [rows, columns], NaN where there are none, and the ends of its colours."""

    title: str
    numbers: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    low: float = 0.0
    high: float = 1.0
    colours: str = "viridis"
    sides: tuple[str, str] = ("layer", "head")  # what rows and columns are
    errors: np.ndarray | None = None  # of the numbers, NaN where there are none
    text_of: Callable[[int, int], str] | None = None  # what a cell says; None: its number, in a small map
    decimals: int = 2  # of numbers below 1
    most: int = 64  # labels of a side


def draw_panels(
    origin: Origin,
    size: tuple[float, float],
    draw_all: Callable[[Figure, set[str], str], object],
    notice: Notify,
    kind: str,
    *,
    labels: str = "",
    errors: str = "",
) -> bytes:
    """A picture, so many inches wide and high, of which a function draws all but `errors` on top and the foot.

    The function is given the figure, the characters that no font has, and the language of words. `notice` receives a
    line about those characters of the foot and of `labels`.
    """
    fonts, missing = find_fonts({*labels, *label_of(origin.checkpoint + origin.prompt, None)})
    remark_on_missing(missing, notice)
    words, spoken = fonts_for(language(), notice)
    height = size[1]
    plain: dict[Any, Any] = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=COLOURS),
    }
    with rc_context({"font.size": 7, "font.family": [*words, *fonts], **plain}):
        figure = new_figure(*size, 110)
        figure.set_layout_engine("constrained", rect=(0, FOOT / height, 1, 1 - (FOOT + 0.1) / height))
        draw_all(figure, missing, spoken)
        if errors:
            figure.suptitle(say(errors, spoken), fontsize=7)
        write_origin(figure, origin, [*fonts, *words], missing, spoken)
        return as_file(figure, kind)


def write_origin(figure: Figure, origin: Origin, fonts: list[str], missing: set[str], spoken: str) -> None:
    """Two lines at the foot: the checkpoint with its step, in the language `spoken`, and the prompt."""
    width, height = figure.get_size_inches()
    num_letters = int((width - 0.2) / _FOOTER_LETTER)
    step = f", step {origin.step:,}"
    path = label_of(origin.checkpoint, None)
    # of a path the end says more
    path = path if len(path) <= num_letters - len(step) else "…" + path[len(path) - num_letters + len(step) + 1 :]
    prompt = label_of(origin.prompt, None)
    while width_of(prompt) > num_letters - 2:
        prompt = prompt[: -max(2, (width_of(prompt) - num_letters) // 2)] + "…"
    text = f"{say(path + step, spoken)}\n“{prompt}”"
    properties = font_manager.FontProperties(family=fonts, size=6)
    style: dict[str, Any] = {"va": "bottom", "color": "#555555", "fontproperties": properties, "parse_math": False}
    figure.text(0.1 / width, 0.06 / height, known(text, missing), **style)


def known(text: str, missing: set[str]) -> str:
    """A text with a sign for each character that no font has."""
    return "".join("□" if character in missing else character for character in text)


def draw_map(figure: Figure, axes: Axes, shown: HeatMap, missing: set[str], spoken: str) -> None:
    """A map with the scale of its colours beside it; grey where there is no number."""
    image = axes.imshow(shown.numbers, vmin=shown.low, vmax=shown.high, cmap=shown.colours, aspect="auto")
    axes.set_facecolor("#cccccc")
    axes.set_title(say(shown.title, spoken), fontsize=8)
    ticks, sides = (axes.set_yticks, axes.set_xticks), (axes.set_ylabel, axes.set_xlabel)
    for set_ticks, set_label, labels, side in zip(ticks, sides, (shown.rows, shown.columns), shown.sides, strict=True):
        every = range(0, len(labels), -(-len(labels) // shown.most))
        set_ticks([*every], [known(labels[n], missing) for n in every], parse_math=False)
        set_label(say(side, spoken) if side else "")
    axes.tick_params(length=0, pad=2)
    for side in axes.spines.values():
        side.set_visible(False)
    figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02).ax.tick_params(labelsize=6)
    if np.isnan(shown.numbers).all():
        axes.text(0.5, 0.5, say("nothing to measure", spoken), ha="center", va="center", transform=axes.transAxes)
    if shown.text_of is None and shown.numbers.size > _MOST_NUMBERS:
        return
    for cell, number in np.ndenumerate(shown.numbers):
        if not np.isnan(number):
            red, green, blue, _ = image.cmap(image.norm(number))
            ink = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
            text = shown.text_of(*cell) if shown.text_of else _short(number, shown.decimals)
            if shown.errors is not None and not np.isnan(error := float(shown.errors[cell])):
                text += f"\n±{_short(error, shown.decimals)}"
            style: dict[str, Any] = {"ha": "center", "va": "center", "color": ink, "parse_math": False}
            axes.text(cell[1], cell[0], known(text, missing), fontsize=5 if "\n" in text else 6, **style)


def _short(number: float, decimals: int) -> str:
    """A number in few characters: .12, 1.2, 12."""
    if abs(number) >= 1:
        return f"{number:.{0 if abs(number) >= 10 else 1}f}"
    return f"{number:.{decimals}f}".replace("0.", ".", 1).replace("-." + "0" * decimals, "." + "0" * decimals)


def draw_curve(
    axes: Axes, across: Sequence[float], values: Any, errors: Any = (), *, band: bool = False, **style: Any
) -> None:
    """A curve with an error to both sides, as bars or as a band; None is no number."""
    values, errors = np.array(values, dtype=float), np.array([*errors] or [np.nan], dtype=float)
    bars = None if band or np.isnan(errors).all() else np.nan_to_num(errors)
    line = axes.errorbar(across, values, yerr=bars, **{"linewidth": 1, "markersize": 2.5, "capsize": 2, **style})[0]
    if band:
        axes.fill_between(across, values - errors, values + errors, color=line.get_color(), alpha=0.2, linewidth=0)


def draw_lines(
    axes: Axes,
    across: Sequence[float],
    lines: Mapping[str, np.ndarray],
    styles: Mapping[str, Mapping[str, Any]],
    errors: Mapping[str, np.ndarray] | None = None,
) -> None:
    """A line for each name: those with a style have their errors as bands and are named beside it, others are grey."""
    for name, line in lines.items():
        if name not in styles:
            axes.plot(across, line, color=GREY, linewidth=0.6, zorder=1)
    for name, style in styles.items():
        bands = () if errors is None else errors[name]
        draw_curve(axes, across, lines[name], bands, band=True, linewidth=1.4, label=name, **style)
    if styles:
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
