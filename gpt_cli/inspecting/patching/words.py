"""What reports on patches have in common: names of places, tokens, shares and metrics. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpt_cli.drawing.labels import label_of
from gpt_cli.inspecting.heads.columns import Row
from gpt_cli.inspecting.patching.request import PARTS

MOST_TOKENS = 24  # of a map; the last ones of longer prompts
LABEL = 10  # characters of a token


def texts_of(report: Any) -> Row:
    """The keys of a report that say what was compared."""
    if report.pairs is None:
        found: Row = {"clean": report.clean, "corrupt": report.corrupt}
    else:
        found = {"pairs": report.pairs}
    return {**found, "metric": report.metric, "answer": report.answer, "against": report.against}


def metric_words(report: Any) -> str:
    """The metric in words, with its tokens where all pairs share them."""
    if report.metric == "log_probability":
        return (
            "log probability of the answer" if report.answer is None else f"log probability of {quoted(report.answer)}"
        )
    if report.answer is None or report.against is None:
        return "logit of the answer minus logit of the other"
    return f"logit of {quoted(report.answer)} minus logit of {quoted(report.against)}"


def place_of(row: Row) -> str:
    """A layer or head as a short name: L2, L2 H3."""
    return f"L{row['layer']}" + ("" if row["head"] is None else f" H{row['head']}")


def quoted(token: str) -> str:
    """A token as a label."""
    return f'"{label_of(token, LABEL)}"'


def share_of(number: float | None, error: float | None = None) -> str:
    return (
        "-"
        if number is None
        else f"{number:.2f}".replace("-0.00", "0.00") + ("" if error is None else f" ±{error:.2f}")
    )


def rows_by_step(rows: Sequence[Row], part: str) -> list[Row]:
    """The rows of a part in tables and pictures: all positions together, of the residual stream the last one.

    All positions of the residual stream recover everything.
    """
    last = max((row["position"] for row in rows if row["position"] is not None), default=-1)
    place = last if part == "residual" else None
    return [row for row in rows if row["part"] == part and row["position"] == place]


def parts_by_step(rows: Sequence[Row]) -> list[str]:
    """The parts that have such rows."""
    return [part for part in PARTS if rows_by_step(rows, part)]
