"""Rows as aligned columns, for terminals."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows as aligned columns; wide characters count as two."""
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(cell + " " * (widths[i] - cell_len(cell)) for i, cell in enumerate(row)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def cut(line: str, width: int) -> str:
    """A line that fits into so many columns; an ellipsis stands for what does not."""
    return line if cell_len(line) <= width else set_cell_size(line, max(0, width - 1)).rstrip() + "…"
