"""Rows as aligned columns, for terminals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size

_NAME = 24  # columns of a first cell, for which a narrow table leaves others out
_INDENT = "    "


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows as aligned columns; wide characters count as two."""
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(cell + " " * (widths[i] - cell_len(cell)) for i, cell in enumerate(row)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def cut(line: str, width: int) -> str:
    """A line that fits into so many columns; an ellipsis stands for what does not."""
    return line if cell_len(line) <= width else set_cell_size(line, max(0, width - 1)).rstrip() + "…"


def narrow_table(rows: Sequence[tuple[str, ...]], width: int, spare: Sequence[str]) -> str:
    """Rows as `table` has them where so many columns hold them; else the last cell of each is below it, indented.

    Then the columns that `spare` names are left out, the first first, until the first cells have room, which lose
    their middle where it is not enough.
    """
    if max(map(cell_len, (whole := table(rows)).split("\n"))) <= width:
        return whole
    last_cells, rows = [row[-1] for row in rows], [row[:-1] for row in rows]
    wanted = min(_NAME, max(cell_len(row[0]) for row in rows))
    room = 0
    for name in (None, *spare):
        rows = [tuple(cell for cell, title in zip(row, rows[0], strict=True) if title != name) for row in rows]
        room = width - 2 - max(map(cell_len, table([row[1:] for row in rows]).split("\n")))
        if room >= wanted:
            break
    lines = table([(_without_middle(row[0], max(room, 3)), *row[1:]) for row in rows]).split("\n")
    both = zip(lines, last_cells, strict=True)
    return "\n".join(cut(part, width) for line, cell in both for part in (line, *_wrapped(cell, width)))


def _without_middle(text: str, width: int) -> str:
    """A text that fits into so many columns, its beginning and its end."""
    if cell_len(text) <= width:
        return text
    end = text[-((width - 1) // 2) :]
    while cell_len(end) > (width - 1) // 2:
        end = end[1:]
    return set_cell_size(text, width - 1 - cell_len(end)) + "…" + end


def _wrapped(text: str, width: int) -> Iterator[str]:
    """The words of a text on indented lines of so many columns."""
    line = ""
    for word in text.split():
        if line and cell_len(f"{_INDENT}{line} {word}") > width:
            yield _INDENT + line
            line = ""
        line = f"{line} {word}" if line else word
    if line:
        yield _INDENT + line
