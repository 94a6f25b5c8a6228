"""Draw curves of runs in a terminal: as braille dots, or as letters if braille or colours are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from gpt_cli.common.drawing.token_labels import COLOURS
from gpt_cli.common.tables import table, without_middle
from gpt_cli.errors import visible
from gpt_cli.tools.reports.compare_runs import MOST_DRAWN, RunGroup, by_token, groups_of, mean_curve, of_tokens
from gpt_cli.tools.reports.curves import TITLES, axis_end, letter_of, scale_of, short, thinned
from gpt_cli.tools.reports.run_record import SMALL, RunRecord

_WIDEST = 120
_NARROWEST = 40
_HEAD = ("state", "step", "training", "validation", "bits/byte", "tokens/s")
_NAME = 12  # columns of a name at least
_HIGH, _LOW = 12, 5  # lines of a panel
_GAP = 3  # columns between two panels
_BRAILLE = 0x2800
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])  # by row and column of a cell
_MARK = "●"


@dataclass(frozen=True)
class Style:
    """The abilities of a terminal: its width, colours and braille characters."""

    width: int  # columns
    colour: bool = False
    braille: bool = True  # False: ASCII alone

    @classmethod
    def of(cls, width: int, encoding: str, *, colour: bool) -> Style:
        """Return the style for a terminal; `braille` is False if `encoding` has no braille characters."""
        try:
            f"{chr(_BRAILLE)}{_MARK}─".encode(encoding)
        except (UnicodeEncodeError, LookupError):
            return cls(width, colour, braille=False)
        return cls(width, colour)


class _Line(NamedTuple):
    """Points (x, y) of the group of runs with rank `group`; drawn as a line if `joined`, else as separate dots."""

    group: int
    x: np.ndarray
    y: np.ndarray
    joined: bool


def plot_curves(records: Sequence[RunRecord], axis: str, style: Style) -> Text:
    """Return a drawing: a legend with a row for each run, then for each quantity a plot of curves against `axis`.

    Runs that differ only in their seed form a group; a curve is the mean of a group, in its colour, with its letter. Of
    more than MOST_DRAWN groups, only those with the lowest losses appear. The training loss is smoothed; for a
    single group, its panel also marks the validation loss. If tokenizers differ, bits per byte replace the losses.
    """
    style = Style(min(max(style.width, _NARROWEST), _WIDEST), style.colour, style.braille)
    groups = [group for group in groups_of(records) if group.rank < MOST_DRAWN]
    if not any(len(record.metrics["step"]) for record in records):  # as of an imported run
        return Text("\n", no_wrap=True).join([*_legend(groups, style), Text(), Text("nothing logged")])
    large = ["smoothed_loss"] + ["validation_loss"] * (len(groups) > 1) if by_token(records) else ["bits_per_byte"]
    rows = [_Panel(groups, axis, style, quantity, style.width, _HIGH).lines() for quantity in large]
    width = (style.width - _GAP) // 2
    small = [_Panel(groups, axis, style, name, width, _LOW).lines() for name in SMALL if name not in large]
    for left, right in zip_longest(small[::2], small[1::2], fillvalue=[Text()] * len(small[0])):
        pairs = zip(left, right, strict=True)
        rows.append([Text.assemble(one, " " * (width + _GAP - one.cell_len), other) for one, other in pairs])
    return Text("\n", no_wrap=True).join([*_legend(groups, style), *(line for row in rows for line in (Text(), *row))])


def _legend(groups: Sequence[RunGroup], style: Style) -> Iterator[Text]:
    """Yield a heading, and a row for each run: the letter of its group, its name, its state and its numbers."""
    both = [(group.rank, record) for group in groups for record in group.records]
    rows = [("run", *_HEAD), *((visible(record.name), *_figures(record)) for _, record in both)]
    # what is left beside the letter and the figures, with two columns between them
    room = max(_NAME, style.width - 5 - max(map(cell_len, table([row[1:] for row in rows]).split("\n"))))
    lines = table([(without_middle(name, room), *figures) for name, *figures in rows]).split("\n")
    for number, line in zip([-1, *(rank for rank, _ in both)], lines, strict=True):
        letter = letter_of(number) if number >= 0 else " "
        yield Text(no_wrap=True).append(letter, style=_colour(number, style)).append(f"  {line}")


def _figures(record: RunRecord) -> tuple[str, ...]:
    """Return the cells of a run in the legend, in the order of _HEAD; the cell of an unknown value is empty."""
    (steps, losses), compared = record.curve("smoothed_loss"), record.result
    speed = record.final_figures()["tokens_per_second"]
    return (
        record.state,
        f"{steps[-1]:,.0f}" if len(steps) else "",
        f"{losses[-1]:.4f}" if len(losses) else "",
        "" if compared is None else str(compared),
        "" if compared is None or compared.bits_per_byte is None else f"{compared.bits_per_byte:.4f}",
        "" if speed is None else short(speed),
    )


def _colour(group: int, style: Style) -> str:
    """Return the colour of the group with rank `group`; "" if `group` is -1 (no group) or the style has no colours."""
    return COLOURS[group % len(COLOURS)] if style.colour and group >= 0 else ""


class _Panel:
    """A panel, which plots one quantity of all groups: a title, a canvas with numbers at its left, and the x axis."""

    def __init__(self, groups: Sequence[RunGroup], axis: str, style: Style, quantity: str, width: int, height: int):
        self.style, self.quantity, self.axis, self.height, self.total = style, quantity, axis, height, width
        quantities = [quantity, "validation_loss"] if quantity == "smoothed_loss" and len(groups) == 1 else [quantity]
        lines = [
            _Line(group.rank, *mean_curve(group, name, axis)[:2], joined=name == quantity)
            for name in quantities
            for group in groups
        ]
        self.curves = [line for line in lines if len(line.x)]
        self.many = len(groups) > 1
        self.of_tokens = of_tokens([record for group in groups for record in group.records])
        self.has_marks = any(not line.joined for line in self.curves)
        self.end = max((float(line.x[-1]) for line in self.curves), default=0.0)
        self.scale = scale_of(quantity, [line.y for line in self.curves])

    def lines(self) -> list[Text]:
        """Return the lines of the panel: its title, `height` lines of canvas, and the x axis."""
        last = self.height - 1
        marked = (0, last // 2, last) if self.height > _LOW else (0, last)
        marks = {row: short(self.scale.value(1 - row / last)) for row in marked if self.curves}
        margin = max(map(len, marks.values()), default=0)
        bar = "│" if self.style.braille else "|"
        cells = self._cells(self.total - margin - 1)
        if not self.curves:
            cells[self.height // 2] = Text("  nothing logged")
        labels = (f"{marks.get(row, ''):>{margin}}{bar}" for row in range(self.height))
        rows = [Text(label, no_wrap=True).append_text(cell) for label, cell in zip(labels, cells, strict=True)]
        end = axis_end(self.axis, self.end) if self.curves else ""
        corner, stroke = ("└", "─") if self.style.braille else ("+", "-")
        foot = f"{'':{margin}}{corner}0 {stroke * (self.total - margin - len(end) - 4)} {end}"
        return [self._title(), *rows, Text(foot, no_wrap=True)]

    def _title(self) -> Text:
        title = TITLES[self.quantity] + (", log scale" if self.scale.log else "")
        if self.has_marks:
            title += f"; {_MARK if self.style.braille else 'o'} validation"
        if self.has_marks or self.quantity in ("validation_loss", "bits_per_byte"):
            if len(title + self.of_tokens) > self.total:
                title = title.replace(", bits per byte", " bits/byte")
            title += self.of_tokens * (len(title + self.of_tokens) <= self.total)
        return Text(title[: self.total], no_wrap=True)

    def _cells(self, width: int) -> list[Text]:
        """Return the lines of the canvas; where curves overlap, a cell has the colour of the curve drawn last."""
        braille = self.style.braille and (self.style.colour or not self.many)
        per_row, per_column = (4, 2) if braille else (1, 1)
        dots = np.zeros((self.height, width), int)
        signs = np.full((self.height, width), " ")
        owners = np.full((self.height, width), -1)
        for line in self.curves:
            columns, heights = self._dots(line, width * per_column, self.height * per_row)
            rows, cells = heights // per_row, columns // per_column
            owners[rows, cells] = line.group
            if braille and line.joined and len(line.x) > 1:  # one dot alone would hardly be visible
                np.bitwise_or.at(dots, (rows, cells), _DOTS[heights % per_row, columns % per_column])
            elif line.joined and not braille:
                signs[rows, cells] = letter_of(line.group) if self.many else "*"
            else:
                signs[rows, cells] = _MARK if self.style.braille else "o"
        return [self._row(*of_row) for of_row in zip(dots, signs, owners, strict=True)]

    def _dots(self, line: _Line, width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns and the rows of a curve's dots on a canvas of `width` by `height` dots."""
        shown = thinned(line.y, 2 * width) if line.joined else slice(None)
        x, y = line.x[shown], line.y[shown]
        columns = np.round(x / (self.end or 1.0) * (width - 1)).astype(int)
        rows = np.round((1 - self.scale.height(y)) * (height - 1)).astype(int)
        if not line.joined or len(x) == 1:
            return columns, rows
        # as many dots between two points as the larger of their distances across and down
        counts = np.maximum(abs(np.diff(columns)), abs(np.diff(rows))) + 1
        shares = np.concatenate([np.linspace(0, 1, count) for count in counts.tolist()])
        across, down = (
            np.round(np.repeat(ends[:-1], counts) + np.repeat(np.diff(ends), counts) * shares).astype(int)
            for ends in (columns, rows)
        )
        return across, down

    def _row(self, dots: np.ndarray, signs: np.ndarray, owners: np.ndarray) -> Text:
        """Return a line of the canvas: signs or, where blank, dots, in the colours of the groups `owners`."""
        both = zip(dots.tolist(), signs.tolist(), strict=True)
        characters = [chr(_BRAILLE + dot) if dot and sign == " " else sign for dot, sign in both]
        line = Text(no_wrap=True)
        for owner, cells in groupby(zip(owners.tolist(), characters, strict=True), key=itemgetter(0)):
            line.append("".join(character for _, character in cells), style=_colour(owner, self.style))
        line.rstrip()
        return line
