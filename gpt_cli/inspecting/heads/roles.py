"""A word for what a head does, where one clearly applies. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping

# the first that applies: an induction head often rests on the first token where there is nothing to repeat
ROLES = (
    ("induction", "induction", 0.4),
    ("previous_token", "previous token", 0.5),
    ("duplicate_token", "duplicate token", 0.5),
    ("first_token", "first token", 0.5),
    ("self", "self", 0.5),
)


def role_of(scores: Mapping[str, float]) -> str | None:
    """The label of a head from its scores: the first of ROLES, (column, label, least score), that it reaches."""
    return next((label for column, label, least in ROLES if scores.get(column, 0.0) >= least), None)
