"""The curves of runs as a picture: a panel for each quantity, all runs overlaid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from gpt_cli.drawing.canvas import Axes, Figure, Line2D, MaxNLocator, as_file, font_manager, new_figure, rc_context
from gpt_cli.drawing.fonts import find_fonts, remark_on_missing, translate
from gpt_cli.drawing.labels import COLOURS
from gpt_cli.errors import visible
from gpt_cli.language import say
from gpt_cli.reporting.curves import TITLES, scale_of, short, thinned, unit_of
from gpt_cli.reporting.figures import by_token, of_tokens
from gpt_cli.reporting.record import RunRecord
from gpt_cli.reporting.request import MOST_DRAWN

_SMALL = ("bits_per_byte", "learning_rate", "gradient_norm", "tokens_per_second")
_MOST_POINTS = 2000  # of a line, more than a picture is wide
_MOST_MARKS = 60  # of a line; more would hide it
_NAME, _HALF = 70, 45  # characters of a name, and of one that leaves room for another beside it
_GREY = "#777777"
_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
}


def draw_report(
    records: Sequence[RunRecord], axis: str, kind: str, notice: Callable[[str], object] = lambda _: None
) -> bytes:
    """A picture of all quantities of at most MOST_DRAWN runs by an axis, the loss on top.

    Of runs with different tokenizers, losses per token are left out, and bits per byte are on top.
    `notice` receives a line when no installed font has a character of a name.
    """
    assert 0 < len(records) <= MOST_DRAWN
    with rc_context(_STYLE):
        figure = new_figure(9.0, 7.6 + 0.18 * len(records), 130, constrained=True)
        grid = figure.add_gridspec(3, 2, height_ratios=(1.8, 1, 1))
        large = figure.add_subplot(grid[0, :])
        if by_token(records):
            _draw_losses(large, records, axis)
        else:
            _draw(large, records, axis, "bits_per_byte")
        small = [quantity for quantity in _SMALL if by_token(records) or quantity != "bits_per_byte"]
        for place, quantity in enumerate(small):
            _draw(figure.add_subplot(grid[1 + place // 2, place % 2]), records, axis, quantity)
        _name_runs(figure, records, notice)
        return as_file(figure, kind)


def draw_losses(record: RunRecord, kind: str = "png", notice: Callable[[str], object] = lambda _: None) -> bytes:
    """A picture of the training and the validation loss of one run by step."""
    with rc_context(_STYLE):
        figure = new_figure(7.5, 4.2, 130, constrained=True)
        _draw_losses(figure.add_subplot(), [record], "step")
        _name_runs(figure, [record], notice)
        return as_file(figure, kind)


def _draw_losses(axes: Axes, records: Sequence[RunRecord], axis: str) -> None:
    """The training loss, as logged and smoothed, and the validation loss, as the page draws them."""
    for number, record in enumerate(records):
        colour, stroke = _stroke(number)
        for quantity, alpha, width in (("loss", 0.38, 0.8), ("smoothed_loss", 1.0, 1.8)):
            x, y = record.curve(quantity, axis)
            kept = thinned(y, _MOST_POINTS)
            axes.plot(x[kept], y[kept], color=colour, linestyle=stroke, alpha=alpha, linewidth=width)
        x, y = record.curve("validation_loss", axis)
        if len(x):
            dots: dict[str, Any] = {"marker": "o", "markersize": 3.5, "markevery": 1 + len(x) // _MOST_MARKS}
            axes.plot(x, y, color=colour, linestyle=stroke, linewidth=0.9, **dots)
            best = int(y.argmin())
            axes.plot(x[best], y[best], color=colour, marker="*", markersize=10, linestyle="none", clip_on=False)
    _finish(axes, records, axis, "loss", ("loss", "validation_loss"))
    if axes.lines:
        text = f"validation text{of_tokens(records)}"
        legend = f"thick: smoothed; thin: each line of metrics; dots: {text}, a star at its lowest"
        axes.set_title(legend, fontsize=8)


def _draw(axes: Axes, records: Sequence[RunRecord], axis: str, quantity: str) -> None:
    for number, record in enumerate(records):
        colour, stroke = _stroke(number)
        x, y = record.curve(quantity, axis)
        kept = thinned(y, _MOST_POINTS)
        marker = "o" if len(kept) == 1 else ""  # a line of one point would not be visible
        axes.plot(x[kept], y[kept], color=colour, linestyle=stroke, marker=marker, markersize=3, linewidth=1)
    _finish(axes, records, axis, quantity, (quantity,))


def _finish(axes: Axes, records: Sequence[RunRecord], axis: str, quantity: str, drawn: Sequence[str]) -> None:
    """Scales and names of both sides."""
    curves = [record.curve(name, axis) for record in records for name in drawn]
    scale = scale_of(quantity, [y for _, y in curves])
    end = max((float(x[-1]) for x, _ in curves if len(x)), default=0.0)
    axes.set_ylabel(TITLES[quantity] + of_tokens(records).replace(" ", "\n", 1) * (quantity == "bits_per_byte"))
    if scale.log:
        axes.set_yscale("log")
    elif scale.low == 0:
        axes.set_ylim(0, 1.05 * scale.high)
    if quantity == "tokens_per_second":
        axes.yaxis.set_major_formatter(lambda place, _: _count(place))
    if not end:
        axes.text(0.5, 0.5, "nothing logged", ha="center", va="center", transform=axes.transAxes, color=_GREY)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    axes.set_xlim(0, end)
    factor, unit = unit_of(end) if axis == "seconds" else (1.0, axis)
    axes.set_xlabel(f"training time ({unit})" if axis == "seconds" else axis)
    # round numbers of that unit, which are whole ones of steps and tokens
    ticks = MaxNLocator(6, integer=axis != "seconds").tick_values(0, end / factor)
    axes.set_xticks([factor * tick for tick in ticks if factor * tick <= end])
    axes.xaxis.set_major_formatter(lambda place, _: f"{place / factor:g}" if axis == "seconds" else _count(place))


def _count(number: float) -> str:
    """A number of steps or tokens at a tick: 1,000 or 2.5 M."""
    return f"{number:,g}" if abs(number) < 100_000 else short(number)


def _stroke(run: int) -> tuple[str, Literal["-", "--"]]:
    """The colour and the kind of line of the run of a number."""
    return COLOURS[run % len(COLOURS)], "-" if run < len(COLOURS) else "--"


def _name_runs(figure: Figure, records: Sequence[RunRecord], notice: Callable[[str], object]) -> None:
    """One run is the title; several are a legend at the foot. All other words are there already."""
    words, spoken = translate(figure, notice)
    names = [visible(record.name, _NAME) for record in records]
    fonts, missing = find_fonts(set("".join(names)))
    remark_on_missing(missing, notice)
    names = ["".join("□" if character in missing else character for character in name) for name in names]
    properties = font_manager.FontProperties(family=[*fonts, *words], size=9)
    around = "（{}）" if spoken == "zh" else " ({})"
    named = [name + around.format(say(record.state, spoken)) for name, record in zip(names, records, strict=True)]
    if len(names) == 1:
        figure.suptitle(named[0], fontproperties=properties, parse_math=False)
        return
    lines = []
    for number in range(len(names)):
        colour, stroke = _stroke(number)
        lines.append(Line2D([], [], color=colour, linestyle=stroke, linewidth=1.5))
    columns = 2 if len(named) > 3 and max(map(len, named)) <= _HALF else 1
    legend = figure.legend(lines, named, loc="outside lower left", frameon=False, prop=properties, ncols=columns)
    for text in legend.get_texts():
        text.set_parse_math(False)
