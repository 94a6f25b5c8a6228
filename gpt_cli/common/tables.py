"""Format rows as aligned columns, for terminals and notebooks."""

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, set_cell_size

from gpt_cli.common.language import say
from gpt_cli.errors import inert

Rows = Sequence[tuple[str, ...]]
_NAME = 24  # columns for first cells; to make room for them, a narrow table drops the columns `spare`
_SHORTEST_NAME = 12  # columns for first cells; to make room for them, it drops the columns `dear` too
_INDENT = "    "
_MOST_ROWS = 500  # in a notebook
# also with a unit, a total or an error; empty cells count as well
_NUMBER = re.compile(r"[+-]?(\d[\d,./]*|inf|nan)(e[+-]?\d+)?( ?[%A-Za-z]{1,7})?( ±.*)?|-|")
# a Chinese character or a word, with the marks that belong to it, or spaces
WORD = re.compile(r"\[[^]]*\]|[（“]*(?:[\u3400-\u9fff]|[^\s\u3400-\u9fff（“，。；：、）”]+)[，。；：、）”]*|\s+|.")
_TABLE = "margin: .5rem 0; border-collapse: collapse; font-variant-numeric: tabular-nums"
_CELL = "padding: .15rem .6rem; border-bottom: 1px solid #8885; vertical-align: top"
_LEFT, _RIGHT = "text-align: left; white-space: pre-wrap", "text-align: right; white-space: pre"


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows as text with aligned columns; a wide character, such as a Chinese one, takes two columns."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell + " " * (widths[i] - cell_len(cell)) for i, cell in enumerate(row)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def html_of(parts: Sequence[Rows | str]) -> str:
    """Return tables and lines of text as HTML, in the colours of the surrounding page; numbers are right-aligned."""
    return "".join(
        f"<p>{html.escape(inert(part))}</p>" if isinstance(part, str) else _html(part) for part in parts if part
    )


def _html(rows: Rows) -> str:
    heading, *body = rows
    columns = zip(*body, strict=True) if body else [()] * len(heading)
    are_numbers = [[_NUMBER.fullmatch(cell.strip()) is not None for cell in each] for each in columns]
    alignments = [_RIGHT if 2 * sum(each) > len(each) else _LEFT for each in are_numbers]

    def line(row: tuple[str, ...], kind: str = "td") -> str:
        cells = zip(alignments, row, strict=True)
        return "".join(
            f'<{kind} style="{_CELL}; {alignment}">{html.escape(inert(cell))}</{kind}>' for alignment, cell in cells
        )

    lines = [*([line(heading, "th")] if any(heading) else []), *map(line, body[:_MOST_ROWS])]
    more = f"<p>{say(f'{len(body) - _MOST_ROWS:,} more rows are not shown')}</p>" if len(body) > _MOST_ROWS else ""
    return f'<table style="{_TABLE}"><tr>{"</tr><tr>".join(lines)}</tr></table>{more}'


def cut(line: str, width: int) -> str:
    """Return `line` if it fits in `width` columns; else its beginning and an ellipsis, in at most `width` columns."""
    return line if cell_len(line) <= width else set_cell_size(line, max(0, width - 1)).rstrip() + "…"


def narrow_table(rows: Sequence[tuple[str, ...]], width: int, spare: Sequence[str], dear: Sequence[str] = ()) -> str:
    """Return rows as `table` does if they fit in `width`; else put the last cell of a row on a line below the row.

    If the rows are still too wide, columns are dropped by title: first those in `spare`, then, if need be, those in
    `dear`. The first cells, which name the rows, stay. Dropping ends once names have room for 24 characters
    (12 when all of `spare` is dropped) and different names look different. Longer names lose their middle.
    """
    if max(map(cell_len, (whole := table(rows)).split("\n"))) <= width:
        return whole
    last_cells, rows = [row[-1] for row in rows], [row[:-1] for row in rows]
    longest = max(cell_len(row[0]) for row in rows)
    names = list[str]()
    for num_left_out, left_out in enumerate((None, *spare, *dear)):
        rows = [tuple(cell for cell, title in zip(row, rows[0], strict=True) if title != left_out) for row in rows]
        name_width = width - 2 - max(map(cell_len, table([row[1:] for row in rows]).split("\n")))
        room = max(name_width, 3)
        # keep as much of the end as of the beginning, or less if two names would look the same
        looks = ([without_middle(row[0], room, end) for row in rows] for end in range((room - 1) // 2, -1, -1))
        names = max(looks, key=lambda each: len(set(each)))
        wanted = min(_NAME if num_left_out < len(spare) else _SHORTEST_NAME, longest)
        if name_width >= wanted and len(set(names)) == len({row[0] for row in rows}):
            break
    lines = table([(name, *row[1:]) for name, row in zip(names, rows, strict=True)]).split("\n")
    words = (re.findall(r"\S+|\s", f"{_INDENT}{' '.join(cell.split())}") for cell in last_cells)
    below = (filled(each, width, _INDENT) if len(each) > len(_INDENT) else () for each in words)
    return "\n".join(cut(part, width) for line, cell in zip(lines, below, strict=True) for part in (line, *cell))


def without_middle(text: str, width: int, most: int = 0) -> str:
    """Shorten a text to `width` columns: keep its beginning, and at most `most` columns of its end."""
    if cell_len(text) <= width:
        return text
    end = text[len(text) - most :]
    while cell_len(end) > most:
        end = end[1:]
    return set_cell_size(text, width - 1 - cell_len(end)) + "…" + end


def right_aligned(text: str, width: int) -> str:
    """Return a text at the right of `width` columns; cut it if it is longer."""
    return " " * (width - cell_len(text)) + set_cell_size(text, min(width, cell_len(text)))


def filled(pieces: Iterable[str], width: int, indent: str = "") -> Iterator[str]:
    """Wrap `pieces` (words, spaces) into lines of at most `width` columns; `indent` starts all lines but the first."""
    line = gap = ""
    for piece in pieces:
        if piece.isspace():
            gap += piece
        elif line.strip() and cell_len(line + gap + piece) > width:
            yield line
            line, gap = indent + piece, ""
        else:
            line, gap = line + gap + piece, ""
    yield line
