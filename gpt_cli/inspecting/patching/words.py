"""What reports on patches have in common: what was compared, shares, and rows by step. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpt_cli.drawing.labels import quoted
from gpt_cli.inspecting.heads.columns import Row
from gpt_cli.inspecting.patching.request import PARTS
from gpt_cli.inspecting.reports import Report

MOST_TOKENS = 24  # of a map; the last ones of longer prompts
LABEL = 10  # characters of a token


@dataclass(frozen=True)
class Patched(Report):
    """What was compared in one pair of prompts, or in several."""

    clean: str | None  # of one pair
    corrupt: str | None
    pairs: Row | None  # file and number, of several
    metric: str  # logit_difference or log_probability
    answer: str | None  # the tokens; None where they differ between pairs
    against: str | None
    tokens: list[Row]  # position, clean, corrupt: None where pairs differ

    @property
    def compared(self) -> Row:
        """The keys of a report that say what was compared."""
        texts = {"clean": self.clean, "corrupt": self.corrupt} if self.pairs is None else {"pairs": self.pairs}
        return {**texts, "metric": self.metric, "answer": self.answer, "against": self.against}

    @property
    def metric_words(self) -> str:
        """The metric in words, with its tokens where all pairs share them."""
        if self.metric == "log_probability":
            return f"log probability of {'the answer' if self.answer is None else quoted(self.answer, LABEL)}"
        if self.answer is None or self.against is None:
            return "logit of the answer minus logit of the other"
        return f"logit of {quoted(self.answer, LABEL)} minus logit of {quoted(self.against, LABEL)}"


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
