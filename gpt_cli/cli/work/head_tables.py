"""A report on heads as tables of 80 columns. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.cells import cell_len

from gpt_cli.drawing.labels import label_of
from gpt_cli.inspecting.heads.report import LOSS_CHANGE, Row, name_of
from gpt_cli.tables import table

# short, so that a row fits
HEADINGS = {
    "entropy": "entr",
    "mean_distance": "dist",
    "first_token": "first",
    "previous_token": "prev",
    "self": "self",
    "duplicate_token": "dup",
    "induction": "ind",
}


def in_tables(found: dict[str, Any], width: int) -> str:
    """A row for each head; then a row for each removed layer, then what each head writes at the query."""
    parts = [_of_heads(found["heads"])]
    if "layers" in found:
        rows = [(str(row["layer"]), _change(row)) for row in found["layers"]]
        parts.append(table([("layer", "loss change"), *rows]))
    if "query" in found:
        title = f"raised most at token {found['query']['position']}, {_quoted(found['query']['token'])}"
        rows = [(name_of(row), _raised(row, width)) for row in found["heads"]]
        parts.append(table([("head", title), *rows]))
    return "\n\n".join(parts)


def legend(found: dict[str, Any]) -> Iterator[str]:
    """What the headings mean, in lines."""
    yield "entr: entropy (nats), dist: mean distance (tokens). Shares of the attention:"
    yield "first: the first token, prev: the token before, self: the token itself,"
    yield "dup: earlier copies of this token, ind: the token after an earlier copy"
    if "loss" in found:
        yield f"loss change: how much the loss ({found['loss']:.4f}) rises without it, ± standard error"


def _of_heads(rows: list[Row]) -> str:
    headings = [*HEADINGS.values(), *(["loss change"] if LOSS_CHANGE in rows[0] else [])]
    columns = [[name, *found] for name, found in zip(headings, zip(*map(_numbers, rows), strict=True), strict=True)]
    widths = [max(map(len, column)) for column in columns]
    aligned = [[cell.rjust(width) for cell in column] for column, width in zip(columns, widths, strict=True)]
    labels = ["label", *((row["label"] or "").removesuffix(" token") for row in rows)]
    return table([*zip(["head", *map(name_of, rows)], *aligned, labels, strict=True)])


def _numbers(row: Row) -> list[str]:
    """The cells of a head."""
    cells = []
    for name in HEADINGS:
        number = row[name]
        # a distance of hundreds of tokens needs no decimals
        decimals = 2 if name != "mean_distance" else 1 if number is None or number < 99.95 else 0
        cells.append("-" if number is None else f"{number:.{decimals}f}")
    return [*cells, _change(row)] if LOSS_CHANGE in row else cells


def _change(row: Row) -> str:
    error = row[f"{LOSS_CHANGE}_error"]
    return f"{row[LOSS_CHANGE]:+.4f}" + ("" if error is None else f" ±{error:.4f}")


def _raised(row: Row, width: int) -> str:
    """As many of the tokens as fit beside the name, at least one."""
    text = ""
    for entry in row["raises"]:
        more = f"{_quoted(entry['token'])} {entry['logit']:+.2f}"
        if text and cell_len(text) + 2 + cell_len(more) > width - cell_len(name_of(row)) - 3:
            break
        text += ("  " if text else "") + more
    return text


def _quoted(token: str) -> str:
    return f'"{label_of(token)}"'
