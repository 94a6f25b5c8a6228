"""Passages and circuits of heads as tables for a terminal. Needs no torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from gpt_cli.attention_maps.head_metrics import Row, head_label
from gpt_cli.common.drawing.token_labels import label_of, quoted
from gpt_cli.common.tables import Rows, cut

MOST_PAIRS = 10  # of heads that compose, in a terminal
BRACKETS = "[[", "]]"
_SHARE = 0.6  # of a line: what comes before a peak explains it


def of_passages(heads: Iterable[Row], width: int, marks: tuple[str, str]) -> Rows:
    """Make a line for each passage of each head, with its peak between the marks and cut to the width."""
    rows = [("head", "mean", "size", "where it writes most")]
    for row in heads:
        name, mean = head_label(row), f"{row['mean_size'] or 0:.2f}"
        for passage in row["passages"]:
            rows.append((name, mean, f"{passage['value']:.2f}", marked(passage, width - 22, marks)))
            name = mean = ""
    return rows


def marked(passage: Row, width: int, marks: tuple[str, str]) -> str:
    """Cut a passage around its peak to at most `width` columns, where the peak leaves room."""
    peak = shown_peak(passage)
    before, after = (_in_line(part) for part in (passage["tokens"][:peak], passage["tokens"][peak + 1 :]))
    token = label_of(passage["tokens"][peak])
    columns = max(2, width - cell_len(token) - 4)
    left = min(cell_len(before), max(int(_SHARE * columns), columns - cell_len(after)))
    if cell_len(before) > left:
        while cell_len(before) > left - 1:
            before = before[1:]
        before = f"…{before}"
    return f"{before}{marks[0]}{token}{marks[1]}{cut(after, columns - left)}".rstrip()


def _in_line(tokens: Iterable[str]) -> str:
    """Join tokens to text in one line, with one space for many."""
    text = re.sub(" {2,}", " ", "".join(tokens))
    return label_of(text, None) if text else ""


def shown_peak(passage: Row) -> int:
    """Return the index of the token that shows the peak: the one before, if that has the peak's character."""
    tokens, peak = passage["tokens"], passage["peak"]
    return max((index for index in range(peak + 1) if tokens[index]), default=peak)


def of_pairs(circuits: Mapping[str, Any]) -> Rows:
    """The pairs of heads that compose most."""
    rows = [("", "from", "to", "score", "above random")]
    for row in circuits["composition"][:MOST_PAIRS]:
        lower, higher = (f"L{row[f'{end}_layer']} H{row[f'{end}_head']}" for end in ("from", "to"))
        rows.append((row["kind"], lower, higher, f"{row['score']:.3f}", f"{row['excess']:+.3f}"))
    return rows


def of_directions(heads: Sequence[Row], width: int) -> list[Rows]:
    """Make a table of the strongest direction of OV of each head, then one of QK."""
    columns = (width - 19) // 2
    tables = []
    for name, (first, second) in (("ov", ("reads", "writes")), ("qk", ("queries", "keys"))):
        rows = [("head", name.upper(), first, second)]
        for row in heads:
            strongest = row[name][0]
            one, other = (_some(strongest[key], columns) for key in (first, second))
            rows.append((head_label(row), f"{strongest['singular_value']:.3g}", one, other))
        tables.append(rows)
    return tables


def _some(tokens: Iterable[str], columns: int) -> str:
    """Join as many tokens as fit, at least one."""
    text = ""
    for token in map(quoted, tokens):
        if text and cell_len(text) + 1 + cell_len(token) > columns:
            break
        text += f" {token}" if text else token
    return text if cell_len(text) <= columns else set_cell_size(text, max(2, columns))
