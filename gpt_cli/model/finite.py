"""Weights that are damaged or too large show in what they compute: numbers that are not finite."""

from __future__ import annotations

import math

from torch import Tensor

from gpt_cli.errors import CheckpointError


def require_finite(numbers: Tensor, what: str, where: str = "checkpoint") -> None:
    """Raises CheckpointError, at `where`, if any of the numbers, `what` in the message, is NaN or infinite."""
    lowest, highest = numbers.aminmax()  # one pass, and NaN passes through
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        raise CheckpointError(
            where,
            f"its weights give {what} that are not finite, so it cannot be used",
            hint="choose another one with --checkpoint, or train again with a smaller learning rate",
        )
