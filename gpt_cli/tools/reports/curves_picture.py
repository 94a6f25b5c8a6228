"""The curves of runs as a picture: a plot for each quantity, all runs overlaid, and their losses by setting."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpt_cli.common.drawing.canvas import (
    Axes,
    Figure,
    Line2D,
    MaxNLocator,
    Text,
    as_file,
    default_style,
    find_fonts,
    font_manager,
    fonts_for,
    remark_on_missing,
)
from gpt_cli.common.drawing.draw_panels import drawable
from gpt_cli.common.drawing.token_labels import COLOURS
from gpt_cli.common.host import Notify, ignored
from gpt_cli.common.language import language, say
from gpt_cli.config.field_types import as_yaml
from gpt_cli.errors import visible
from gpt_cli.tools.reports.compare_runs import MOST_DRAWN, RunGroup, by_token, groups_of, mean_curve, of_tokens, swept
from gpt_cli.tools.reports.curves import TITLES, is_steep, scale_of, short, thinned, unit_of
from gpt_cli.tools.reports.run_record import SMALL, RunRecord, read_record

_MOST_POINTS = 2000  # of a line, more than a picture is wide
_MOST_MARKS = 60  # of a line; more would hide it
_MOST_TICKS, _TICK = 12, 14  # most values with a tick each in a row of panels, and most characters of a tick
_NAME, _HALF, _THIRD = 70, 45, 28  # characters of a name at most, and in a legend of two or three columns
_GREY = "#777777"
_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
}


def draw_curves(records: Sequence[RunRecord], axis: str, kind: str, notice: Notify = ignored) -> bytes:
    """Return a picture: all quantities against `axis`, the loss on top, and the loss after training against settings.

    A group of runs that differ only in their seed is drawn as its mean, in a band of the standard error. The best
    MOST_DRAWN groups are in colour, others grey. If tokenizers differ, bits per byte replace losses per token on top.
    `axis` is one of AXES, `kind` png, svg or pdf. `notice` receives a line if no font has a character of a name.
    """
    groups = groups_of(records)
    fonts, missing = find_fonts(set("".join(visible(group.label) for group in groups)))
    names, in_colour = swept(groups), min(len(groups), MOST_DRAWN + 1)
    with default_style(_STYLE):
        height = 7.6 + 0.18 * in_colour + (2.2 if names else 0)
        figure = Figure(figsize=(9.0, height), dpi=130, layout="constrained")
        large, *rows = figure.add_gridspec(3 + bool(names), 1, height_ratios=[1.8, *([1.2] if names else []), 1, 1])
        if by_token(records):
            _draw_losses(figure.add_subplot(large), groups, axis)
        else:
            _draw(figure.add_subplot(large), groups, axis, "bits_per_byte")
        row = rows.pop(0).subgridspec(1, len(names)) if names else large.subgridspec(1, 1)
        for cell, name in enumerate(names):
            _draw_setting(figure.add_subplot(row[0, cell]), groups, name, missing)
        small = [quantity for quantity in SMALL if by_token(records) or quantity != "bits_per_byte"]
        for quantity, cell in zip(small, [each for row in rows for each in row.subgridspec(1, 2)], strict=False):
            _draw(figure.add_subplot(cell), groups, axis, quantity)
        _name_groups(figure, groups, fonts, missing, notice)
        return as_file(figure, kind)


def draw_losses(directory: Path, kind: str = "png") -> bytes | None:
    """Return a picture of a run's losses by step; None for a run that has logged nothing or is being trained."""
    record = read_record(directory)
    if record.state == "training" or not len(record.metrics["step"]):
        return None
    with default_style(_STYLE):
        figure = Figure(figsize=(7.5, 4.2), dpi=130, layout="constrained")
        groups = groups_of([record])
        fonts, missing = find_fonts(set(visible(record.name)))
        _draw_losses(figure.add_subplot(), groups, "step")
        _name_groups(figure, groups, fonts, missing, ignored)
        return as_file(figure, kind)


def _draw_losses(axes: Axes, groups: Sequence[RunGroup], axis: str) -> None:
    """Draw the training loss, as logged and smoothed, and the validation loss, in the style of the report's page.

    For a group of several runs, draw only the means of the smoothed loss and of the validation loss.
    """
    for group in groups:
        if len(group.records) == 1:
            _draw_line(axes, group, axis, "loss", alpha=0.38, linewidth=0.8)
        _draw_line(axes, group, axis, "smoothed_loss", linewidth=1.8)
        x, y, _ = mean_curve(group, "validation_loss", axis)
        dots: dict[str, Any] = {"marker": "o", "markersize": 3.5, "markevery": 1 + len(x) // _MOST_MARKS}
        _draw_line(axes, group, axis, "validation_loss", linewidth=0.9, **dots)
        if len(group.records) == 1 and len(x):
            best = int(y.argmin())
            star = _stroke(group) | {"linestyle": "none", "marker": "*", "markersize": 10}
            axes.plot(x[best], y[best], clip_on=False, **star)
    records = [record for group in groups for record in group.records]
    _finish(axes, records, axis, "loss", ("loss", "validation_loss"))
    if axes.lines:
        text = f"validation text{of_tokens(records)}"
        legend = f"thick: smoothed; thin: each line of metrics; dots: {text}, a star at its lowest"
        if len(records) > len(groups):
            legend = f"means over seeds ± standard error; thick: smoothed; dots: {text}"
        axes.set_title(legend, fontsize=8)


def _draw(axes: Axes, groups: Sequence[RunGroup], axis: str, quantity: str) -> None:
    for group in groups:
        _draw_line(axes, group, axis, quantity, linewidth=1)
    _finish(axes, [record for group in groups for record in group.records], axis, quantity, (quantity,))


def _draw_line(axes: Axes, group: RunGroup, axis: str, quantity: str, **style: Any) -> None:
    """Draw the mean curve of a group, and, for several runs, a band of its standard error."""
    x, y, error = mean_curve(group, quantity, axis)
    if not len(x):
        return
    points = thinned(y, _MOST_POINTS)
    stroke = _stroke(group)
    dot = {"marker": "o", "markersize": 3} if len(x) == 1 else {}  # a line of one point would not be visible
    axes.plot(x[points], y[points], **stroke, **dot | style)
    if error.any() and group.rank < MOST_DRAWN:
        low, high = (y - error)[points], (y + error)[points]
        axes.fill_between(x[points], low, high, color=stroke["color"], alpha=0.15, linewidth=0)


def _draw_setting(axes: Axes, groups: Sequence[RunGroup], name: str, missing: set[str]) -> None:
    """Draw each group's losses and mean ± error against setting `name`; lines join groups with equal other settings."""
    values = {as_yaml(group.mean.settings[name]): group.mean.settings[name] for group in groups}
    numeric = all(type(value) in (int, float) for value in values.values())
    ticks = {text: float(values[text]) if numeric else tick for tick, text in enumerate(values)}
    points = [(ticks[as_yaml(group.mean.settings[name])], group) for group in groups if group.mean.num_runs]
    lines = dict[str, list[tuple[float, float]]]()
    for tick, group in sorted(points, key=lambda one: one[0]):
        others = as_yaml({key: value for key, value in group.mean.settings.items() if key != name})
        lines.setdefault(others, []).append((tick, group.mean.mean or 0.0))
    for line in lines.values():
        axes.plot(*zip(*line, strict=True), color=_GREY, linewidth=0.8, zorder=1)
    for tick, group in points:
        colour = _stroke(group)["color"]
        axes.errorbar(tick, group.mean.mean or 0.0, group.mean.error, color=colour, marker="o", capsize=3)
        if group.mean.num_runs > 1:
            axes.plot([tick] * group.mean.num_runs, group.mean.losses, ".", color=colour, alpha=0.5)
    losses = [loss for _, group in points for loss in group.mean.losses]
    if losses and is_steep(min(losses), max(losses)):
        axes.set_yscale("log")
    low, high = min(ticks.values()), max(ticks.values())
    if numeric and low > 0 and ("rate" in name or high >= 10 * low):
        axes.set_xscale("log")
    if len(ticks) <= _MOST_TICKS // len(groups[0].mean.settings) or not numeric:
        texts = [drawable(visible(text, _TICK), missing) for text in values]
        axes.minorticks_off()
        axes.set_xticks([*ticks.values()], texts, rotation=0 if len(ticks) <= _MOST_TICKS else 90, parse_math=False)
    axes.margins(0.08)
    axes.set_xlabel(name)
    comparable = by_token([record for group in groups for record in group.records])
    axes.set_ylabel(TITLES["validation_loss" if comparable else "bits_per_byte"])


def _finish(axes: Axes, records: Sequence[RunRecord], axis: str, quantity: str, drawn: Sequence[str]) -> None:
    """Set scales and labels of a plot of `quantity` against `axis`; `drawn` are the quantities of all its curves."""
    curves = [record.curve(name, axis) for record in records for name in drawn]
    scale = scale_of(quantity, [y for _, y in curves])
    end = max((float(x[-1]) for x, _ in curves if len(x)), default=0.0)
    axes.set_ylabel(TITLES[quantity] + of_tokens(records).replace(" ", "\n", 1) * (quantity == "bits_per_byte"))
    if scale.log:
        axes.set_yscale("log")
    elif scale.low == 0:
        axes.set_ylim(0, 1.05 * scale.high)
    if quantity == "tokens_per_second":
        axes.yaxis.set_major_formatter(lambda value, _: _count(value))
    if not end:
        axes.text(0.5, 0.5, "nothing logged", ha="center", va="center", transform=axes.transAxes, color=_GREY)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    axes.set_xlim(0, end)
    factor, unit = unit_of(end) if axis == "seconds" else (1.0, axis)
    axes.set_xlabel(f"training time ({unit})" if axis == "seconds" else axis)
    # round numbers in the unit; for steps and tokens, whole numbers
    ticks = MaxNLocator(6, integer=axis != "seconds").tick_values(0, end / factor)
    axes.set_xticks([factor * tick for tick in ticks if factor * tick <= end])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / factor:g}" if axis == "seconds" else _count(value))


def _count(number: float) -> str:
    """Format a number of steps or tokens at a tick: 1,000 or 2.5 M."""
    return f"{number:,g}" if abs(number) < 100_000 else short(number)


def _stroke(group: RunGroup) -> dict[str, Any]:
    """Return the colour and dashes of a group's lines; groups of rank MOST_DRAWN or more are grey and dotted."""
    if group.rank >= MOST_DRAWN:
        return {"color": _GREY, "linestyle": ":"}
    return {"color": COLOURS[group.rank % len(COLOURS)], "linestyle": "-" if group.rank < len(COLOURS) else "--"}


def _name_groups(
    figure: Figure, groups: Sequence[RunGroup], fonts: Sequence[str], missing: set[str], notice: Notify
) -> None:
    """Name groups in a title or legend, with □ for `missing` letters; call this last, since it translates all texts."""
    words, spoken = fonts_for(language(), notice)
    for text in figure.findobj(Text):
        text.set_text(say(text.get_text(), spoken))
        text.set_fontfamily(words)
    remark_on_missing(missing, notice)
    family = [*fonts, *words]
    for axes in figure.axes:
        for text in axes.get_xticklabels():  # values of settings, perhaps names of texts
            text.set_fontfamily(family)
    properties = font_manager.FontProperties(family=family, size=9)
    around = "（{}）" if spoken == "zh" else " ({})"
    named, lines = [], []
    for group in groups:
        if group.rank < MOST_DRAWN:
            states = dict.fromkeys(say(record.state, spoken) for record in group.records if record.state != "finished")
            label = drawable(visible(group.label, _NAME), missing)
            named.append(label + (around.format(", ".join(states)) if states else ""))
            lines.append(Line2D([], [], linewidth=1.5, **_stroke(group)))
    if len(groups) == 1:
        figure.suptitle(named[0], fontproperties=properties, parse_math=False)
        return
    if others := [group for group in groups if group.rank >= MOST_DRAWN]:
        named.append(say(f"{len(others)} more, with higher losses", spoken))
        lines.append(Line2D([], [], linewidth=1.5, **_stroke(others[0])))
    longest = max(map(len, named))
    columns = 1 if len(named) < 4 or longest > _HALF else 2 if longest > _THIRD else 3
    legend = figure.legend(lines, named, loc="outside lower left", frameon=False, prop=properties, ncols=columns)
    for text in legend.get_texts():
        text.set_parse_math(False)
