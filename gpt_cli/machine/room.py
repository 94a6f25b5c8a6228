"""Refuses what memory or disk cannot hold, before the work begins. Needs no torch."""

from __future__ import annotations

from gpt_cli.amounts import size
from gpt_cli.errors import EnvironmentFailure


def require_room(where: str, about: str, num_bytes: int, free: int | None, *, what: str, hint: str) -> None:
    """Raises EnvironmentFailure where `about`, such as 8 heads on 40 tokens, take more of `what` than is free.

    None says that nobody knows how much is free.
    """
    if free is not None and num_bytes > free:
        wrong = f"{about} take about {size(num_bytes)} of {what}, and {size(free)} are free"
        raise EnvironmentFailure(where, wrong, hint=hint)
