"""The scores that describe an attention head, and a label for what the head does. Needs neither torch nor numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import numpy as np

Column = Literal["entropy", "mean_distance", "first_token", "previous_token", "self", "duplicate_token", "induction"]
COLUMNS: tuple[str, ...] = get_args(Column)
PATTERNS = COLUMNS[:-1]
LOSS_CHANGE = "loss_change"
Row = dict[str, Any]  # the scores of a head, with its layer and number
# name of a score, such as "induction" -> array [layers, heads]; NaN means no data
HeadScores = Mapping[str, "np.ndarray"]
LEAST_TOKENS = 8  # in a shorter text, heads have no role: nearly all attend to the first or the last token
# role -> the least share of attention for it; a head has the first role that applies, as an induction head often
# attends to the first token if nothing repeats
ROLES = {"induction": 0.4, "previous_token": 0.5, "duplicate_token": 0.5, "first_token": 0.5, "self": 0.5}
SHARES = (*ROLES,)


def head_label(row: Mapping[str, Any]) -> str:
    """Return a row's name: of a head, such as "L2 H3", or, if row["head"] is None, of a layer, such as "L2"."""
    return f"L{row['layer']}" + ("" if row["head"] is None else f" H{row['head']}")


def role_of(scores: Mapping[str, float], num_tokens: int) -> str | None:
    """Return the role of a head, such as "first token": the first in ROLES whose score reaches its threshold.

    Returns None if no score reaches its threshold, or if the text has fewer than LEAST_TOKENS tokens.
    """
    if num_tokens < LEAST_TOKENS:
        return None
    return next((name.replace("_", " ") for name, least in ROLES.items() if scores.get(name, 0.0) >= least), None)
