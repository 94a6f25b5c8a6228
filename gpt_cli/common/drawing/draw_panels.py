"""Draw pictures of panels (heat maps, or curves with errors) above a footer that names checkpoint and prompt.

Row 0 of a heat map, such as the first layer, is at the top. An error is one standard error, as a caption states.
"""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpt_cli.common.drawing.canvas import (
    Axes,
    Figure,
    LogFormatter,
    MaxNLocator,
    as_file,
    cycler,
    default_style,
    find_fonts,
    font_manager,
    fonts_for,
    remark_on_missing,
)
from gpt_cli.common.drawing.panels import Curves, HeatMap, Panel, PlotLine
from gpt_cli.common.drawing.token_labels import COLOURS, Origin, label_of, width_of
from gpt_cli.common.host import Notify, ignored
from gpt_cli.common.language import language, say
from gpt_cli.common.tables import cut, without_middle

BARS, BANDS, CELLS = "bars: ± one standard error", "bands: ± one standard error", "±: one standard error"
GREY = "#b8b8b8"
_FOOT = 0.45  # inches
_MOST_NUMBERS = 64  # cells of a map that have their numbers
_MOST_LABELS = 64  # of a side of a map
_FEW_LINES = 3  # lines whose names have room inside their panel
_LETTER = 0.066  # inches: about the width of one letter of a label
_FOOTER_LETTER = 0.05  # inches: about the width of one letter of the foot


def draw_panels(
    origin: Origin, panels: Sequence[Panel], notice: Notify = ignored, kind: str = "png", *, beside: int = 1
) -> bytes:
    """Return a picture of panels, `beside` in a row, as the bytes of a file of type `kind`: png, svg or pdf.

    A footer shows `origin`. `notice` receives a line about characters of labels and footer that no installed font has.
    """
    maps = [panel for panel in panels if isinstance(panel, HeatMap)]
    labels = "".join(panel.labels for panel in maps)
    fonts, missing = find_fonts({*labels, *label_of(origin.checkpoint + origin.prompt, None)})
    remark_on_missing(missing, notice)
    words, spoken = fonts_for(language(), notice)
    beside = min(beside, len(panels))
    num_rows = -(-len(panels) // beside)
    sizes = [_size(panel, beside) for panel in panels]
    widths = [max(width for width, _ in sizes[column::beside]) for column in range(beside)]
    heights = [max(height for _, height in sizes[beside * row : beside * (row + 1)]) for row in range(num_rows)]
    width, height = max(sum(widths), 4.0), sum(heights) + _FOOT + 0.1
    plain = {"axes.spines.top": False, "axes.spines.right": False, "axes.prop_cycle": cycler(color=COLOURS)}
    with default_style({"font.size": 7, "font.family": [*words, *fonts], **plain}):
        figure = Figure(figsize=(width, height), dpi=110)
        figure.set_layout_engine("constrained", rect=(0, _FOOT / height, 1, 1 - (_FOOT + 0.1) / height))
        ratios: dict[str, Any] = {"width_ratios": widths, "height_ratios": heights}
        all_axes = figure.subplots(num_rows, beside, squeeze=False, sharex=beside == 1 and not maps, **ratios).flat
        for axes, panel in zip(all_axes, panels, strict=False):
            if isinstance(panel, HeatMap):
                draw_map(figure, axes, panel, missing, spoken)
            else:
                last = panel is panels[-1]
                draw_lines(axes, panel, spoken, stacked=beside == 1, last=last)
                if last or _names(panel) != _names(panels[-1]):  # else the last one has them
                    _name_lines(axes, panel)
        for axes in all_axes[len(panels) :]:
            axes.set_axis_off()
        if errors := _errors(panels):
            figure.suptitle(say(errors, spoken), fontsize=7)
        write_origin(figure, origin, [*fonts, *words], missing, spoken)
        return as_file(figure, kind)


def _size(panel: Panel, beside: int) -> tuple[float, float]:
    """Return width and height of a panel in inches."""
    if isinstance(panel, Curves):
        return (7.5, 1.5) if beside == 1 else (2.3, 2.6)
    cell, turned = _cell(panel), 0.06 * _longest(panel.columns) if _is_turned(panel) else 0.12
    rows, columns = panel.numbers.shape
    return max(1.2, cell[0] * columns) + 1.1 + 0.04 * _longest(panel.rows), max(0.6, cell[1] * rows) + 0.6 + turned


def _cell(panel: HeatMap) -> tuple[float, float]:
    """Return width and height of a heat map's cell in inches."""
    if panel.texts is not None:
        return 0.62, 0.24
    return (0.42, 0.42) if panel.numbers.size <= _MOST_NUMBERS else (0.2, 0.2)


def _longest(labels: Sequence[str]) -> int:
    return max((width_of(line) for label in labels for line in label.split("\n")), default=0)


def _is_turned(panel: HeatMap) -> bool:
    """Return whether the labels below the columns are wider than the columns, and are therefore rotated."""
    return _longest(panel.columns) > _cell(panel)[0] / _LETTER


def _errors(panels: Sequence[Panel]) -> str:
    """Return the caption that explains error bars, bands or ± in a picture; "" if no panel has standard errors."""
    for panel in panels:
        errors = [panel.errors] if isinstance(panel, HeatMap) else [line.errors for line in panel.lines]
        if any(each is not None and np.isfinite(np.array(each, float)).any() for each in errors):
            return CELLS if isinstance(panel, HeatMap) else BANDS if panel.x_label == "step" else BARS
    return ""


def write_origin(figure: Figure, origin: Origin, fonts: list[str], missing: set[str], spoken: str) -> None:
    """Write a footer (checkpoint, step, prompt) in the language `spoken`; □ replaces characters in `missing`."""
    width, height = figure.get_size_inches()
    num_letters = int((width - 0.2) / _FOOTER_LETTER)
    step = f", step {origin.step:,}"
    room = num_letters - len(step)
    path = without_middle(label_of(origin.checkpoint, None), room, room - 1)  # its end is the more informative part
    text = f"{say(path + step, spoken)}\n“{cut(label_of(origin.prompt, None), num_letters - 2)}”"
    properties = font_manager.FontProperties(family=fonts, size=6)
    style: dict[str, Any] = {"va": "bottom", "color": "#555555", "fontproperties": properties, "parse_math": False}
    figure.text(0.1 / width, 0.06 / height, drawable(text, missing), **style)


def drawable(text: str, missing: set[str]) -> str:
    """Replace the characters in `missing`, which no font has, by empty squares."""
    return "".join("□" if character in missing else character for character in text)


def draw_map(figure: Figure, axes: Axes, shown: HeatMap, missing: set[str], spoken: str) -> None:
    """Draw a heat map and its colour bar, with titles in the language `spoken`; □ replaces characters in `missing`."""
    colours = "viridis" if shown.low >= 0 else "RdBu_r"
    image = axes.imshow(shown.numbers, vmin=shown.low, vmax=shown.high, cmap=colours, aspect="auto")
    axes.set_facecolor("#cccccc")
    axes.set_title(say(shown.title, spoken), fontsize=8)
    ticks, setters = (axes.set_yticks, axes.set_xticks), (axes.set_ylabel, axes.set_xlabel)
    for set_ticks, set_label, labels, name in zip(
        ticks, setters, (shown.rows, shown.columns), shown.axis_labels, strict=True
    ):
        every = range(0, len(labels), -(-len(labels) // _MOST_LABELS))
        set_ticks([*every], [drawable(labels[n], missing) for n in every], parse_math=False)
        set_label(say(name, spoken) if name else "")
    axes.tick_params(length=0, pad=2)
    axes.tick_params(axis="x", rotation=90 if _is_turned(shown) else 0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02).ax.tick_params(labelsize=6)
    if np.isnan(shown.numbers).all():
        axes.text(0.5, 0.5, say("nothing to measure", spoken), ha="center", va="center", transform=axes.transAxes)
    if shown.texts is None and shown.numbers.size > _MOST_NUMBERS:
        return
    for cell, number in np.ndenumerate(shown.numbers):
        if not np.isnan(number):
            red, green, blue, _ = image.cmap(image.norm(number))
            # on a colour of this luminance, both inks have the same contrast
            ink = "black" if 0.21 * red**2.2 + 0.72 * green**2.2 + 0.07 * blue**2.2 > 0.18 else "white"
            text = _short(number, shown.decimals) if shown.texts is None else str(shown.texts[cell])
            if shown.errors is not None and not np.isnan(error := float(shown.errors[cell])):
                text += f"\n±{_short(error, shown.decimals)}"
            style: dict[str, Any] = {"ha": "center", "va": "center", "color": ink, "parse_math": False}
            axes.text(cell[1], cell[0], drawable(text, missing), fontsize=5 if "\n" in text else 6, **style)


def _short(number: float, decimals: int) -> str:
    """Format a number in few characters: .12, 1.2, 12."""
    if abs(number) >= 1:
        return f"{number:.{0 if abs(number) >= 10 else 1}f}"
    return f"{number:.{decimals}f}".replace("0.", ".", 1).replace("-." + "0" * decimals, "." + "0" * decimals)


def draw_lines(axes: Axes, shown: Curves, spoken: str, *, stacked: bool = False, last: bool = True) -> None:
    """Draw a panel's lines with errors; a panel in a column (`stacked`) labels the x axis only if it is the `last`."""
    for line in shown.lines:
        _draw_line(axes, line, spoken, band=shown.x_label == "step")
    if stacked:
        axes.set_ylabel("\n".join(textwrap.wrap(say(shown.title, spoken), 16)))
    else:
        axes.set_title(say(shown.title, spoken), fontsize=7)
    axes.set_ylim(*shown.limits)
    if shown.ticks:
        axes.set_xticks(range(len(shown.ticks)), [say(tick, spoken) for tick in shown.ticks])
        axes.set_xlim(-0.5, len(shown.ticks) - 0.5)
    else:
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
        if last or not stacked:
            axes.set_xlabel(say(shown.x_label, spoken))
    if shown.log:  # with plain numbers, such as 450
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(LogFormatter())
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.4)))


def _names(panel: Panel) -> list[str]:
    return [line.label for line in panel.lines if line.label] if isinstance(panel, Curves) else []


def _name_lines(axes: Axes, shown: Curves) -> None:
    """Draw a legend inside the panel, or beside it if many lines have labels or if some lines have none."""
    named = _names(shown)
    if len(named) > _FEW_LINES or (named and len(named) < len(shown.lines)):
        axes.legend(frameon=False, fontsize=6, loc="upper left", bbox_to_anchor=(1, 1))
    elif named and (len(named) > 1 or shown.x_label == "step"):
        axes.legend(frameon=False, fontsize=6)


def _draw_line(axes: Axes, line: PlotLine, spoken: str, *, band: bool) -> None:
    """Draw a line with its standard errors as a band (if `band`) or as bars; a value of None leaves a gap."""
    values = np.array(line.values, float)
    errors = np.full(len(values), np.nan) if line.errors is None else np.array(line.errors, float)
    bars = None if band or np.isnan(errors).all() else np.nan_to_num(errors)
    plain = {"linewidth": 1.2} if line.label else {"color": GREY, "linewidth": 0.6, "zorder": 1}
    style = {"markersize": 2.5, "capsize": 2, **plain, **line.style}
    drawn = axes.errorbar(line.across, values, yerr=bars, label=say(line.label, spoken), **style)[0]
    if band and np.isfinite(errors).any():
        colour = drawn.get_color()
        axes.fill_between(line.across, values - errors, values + errors, color=colour, alpha=0.2, linewidth=0)
