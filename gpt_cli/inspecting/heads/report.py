"""A report on heads as rows: what JSON and CSV contain. Needs no torch."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpt_cli.drawing.labels import inert_cell
from gpt_cli.inspecting.heads.columns import COLUMNS, HeadScores, role_of

if TYPE_CHECKING:
    import numpy as np

Row = dict[str, Any]
LOSS_CHANGE = "loss_change"
SORTABLE = (*COLUMNS, LOSS_CHANGE)
FORMATS = (".json", ".csv", ".png")


def head_rows(scores: HeadScores) -> list[Row]:
    """A row for each head, by layer and head: where it is, its scores, None where there are none, and its label."""
    rows = []
    for row, layer in enumerate(scores.layers):
        for column, head in enumerate(scores.heads):
            found = scores.of(row, column)
            numbers = {name: _or_none(found[name]) for name in COLUMNS}
            rows.append({"layer": layer, "head": head, **numbers, "label": role_of(found)})
    return rows


def change_rows(changes: np.ndarray, errors: np.ndarray) -> list[Row]:
    """The columns that an ablation adds, a row for each of its heads or layers."""
    pairs = zip(changes.ravel().tolist(), errors.ravel().tolist(), strict=True)
    return [{LOSS_CHANGE: change, f"{LOSS_CHANGE}_error": _or_none(error)} for change, error in pairs]


def name_of(row: Mapping[str, Any]) -> str:
    """A head as a short name: L2 H3."""
    return f"L{row['layer']} H{row['head']}"


def sort_rows(rows: Sequence[Row], column: str | None) -> list[Row]:
    """The rows with the highest number of a column first, and those without one last; None leaves their order."""
    if column is None:
        return [*rows]
    return sorted(rows, key=lambda row: -math.inf if row[column] is None else row[column], reverse=True)


def as_json(report: Mapping[str, Any]) -> bytes:
    """A report as the one line that --json prints."""
    return f"{json.dumps(report, ensure_ascii=False, allow_nan=False)}\n".encode()


def as_csv(rows: Sequence[Row], layers: Sequence[Row] = ()) -> bytes:
    """The rows of heads as CSV, with their keys as its first line; None is empty.

    A list has columns for each of its entries: raises_1_token. What a whole layer is worth stands in the rows of its
    heads, as layer_loss_change. Texts are `inert_cell`s.
    """
    of_layer = {row["layer"]: {f"layer_{key}": row[key] for key in row if key != "layer"} for row in layers}
    flat = [_flat(row | of_layer.get(row["layer"], {})) for row in rows]
    text = io.StringIO()
    text.write(f"{','.join(flat[0])}\n")
    # a carriage return in a token is quoted too
    writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows(
        {key: inert_cell(cell) if isinstance(cell, str) else cell for key, cell in row.items()} for row in flat
    )
    return text.getvalue().encode()


def _flat(row: Mapping[str, Any]) -> Row:
    found = {}
    for key, value in row.items():
        if isinstance(value, list):
            found |= {f"{key}_{n}_{name}": part for n, entry in enumerate(value, 1) for name, part in entry.items()}
        else:
            found[key] = value
    return found


def _or_none(number: float) -> float | None:
    return None if math.isnan(number) else number
