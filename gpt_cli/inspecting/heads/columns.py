"""The numbers that describe a head, without what computes them. Needs neither torch nor numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

PATTERNS = ("entropy", "mean_distance", "first_token", "previous_token", "self", "duplicate_token")
COLUMNS = (*PATTERNS, "induction")


@dataclass(frozen=True)
class HeadScores:
    """A number for each head in each of COLUMNS: [layers, heads] by name, NaN where there was nothing to measure."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    columns: Mapping[str, np.ndarray]

    def of(self, row: int, column: int) -> dict[str, float]:
        """The scores of the head at these places in `layers` and `heads`."""
        return {name: float(found[row, column]) for name, found in self.columns.items()}
