"""Curves as numbers: smoothed, thinned and scaled; formats of their figures, axes and runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

TITLES = {
    "loss": "loss (nats/token)",
    "smoothed_loss": "loss (nats/token)",
    "validation_loss": "validation loss (nats/token)",
    "bits_per_byte": "validation, bits per byte",
    "learning_rate": "learning rate",
    "gradient_norm": "gradient norm",
    "tokens_per_second": "tokens/s",
}
_STEEP = 20.0  # how many times its lowest value a curve may have before a straight scale hides the rest
_FROM_ZERO = ("learning_rate", "tokens_per_second")
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))


def thinned(y: np.ndarray, most: int) -> np.ndarray:
    """Select at most `most` points, 4 or more, that look like all of `y`: first, last, minima and maxima.

    Of stretches of equally many points, the lowest and the highest are kept; all places where y has few.
    """
    if len(y) <= most:
        return np.arange(len(y))
    ends = np.linspace(0, len(y), (most - 2) // 2 + 1).astype(int)
    indices = {0, len(y) - 1}
    for begin, end in pairwise(ends):
        stretch = y[begin:end]
        indices |= {int(begin + stretch.argmin()), int(begin + stretch.argmax())}
    return np.array(sorted(indices))


class Scale(NamedTuple):
    """The values at the foot and at the head of a panel; by `log`, the same ratio takes the same height."""

    low: float
    high: float
    log: bool = False

    def height(self, values: np.ndarray) -> np.ndarray:
        """Heights from 0 to 1."""
        low, high = (math.log(end) if self.log else end for end in self[:2])
        scaled = np.log(values) if self.log else values
        return np.clip((scaled - low) / (high - low), 0.0, 1.0)

    def value(self, height: float) -> float:
        """The value at a height from 0 to 1."""
        if self.log:
            return self.low * (self.high / self.low) ** height
        return self.low + (self.high - self.low) * height


def scale_of(quantity: str, curves: Sequence[np.ndarray]) -> Scale:
    """Choose the scale that shows all values: by log where their range is wide."""
    values = [end for curve in curves if len(curve) for end in (float(curve.min()), float(curve.max()))]
    if not values:
        return Scale(0.0, 1.0)
    low, high = min(values), max(values)
    if quantity in _FROM_ZERO and low >= 0:
        return Scale(0.0, high or 1.0)
    if is_steep(low, high):
        return Scale(low, high, log=True)
    if low == high:
        return Scale(low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2)
    return Scale(low, high)


def is_steep(low: float, high: float) -> bool:
    """Return whether values from low to high need a scale by log."""
    return low > 0 and high > _STEEP * low


def letter_of(run: int) -> str:
    """Letter by which legends name the runs of a number, from 0: a, b, c; after z numbers."""
    return chr(ord("a") + run) if run < 26 else str(run + 1)


def short(number: float) -> str:
    """Format a number in at most four digits: 3.353, 7,397, 12.4 k, 1e-04."""
    size = abs(number)
    if size >= 1e12 or 0 < size < 1e-3:
        return f"{number:.0e}" if f"{number:.0e}" == f"{number:.1e}".replace(".0e", "e") else f"{number:.1e}"
    for unit, factor in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if size >= 10 * factor or (factor > 1e3 and size >= factor):
            return f"{number / factor:.3g}{unit}"
    return f"{number:,.4g}"


def axis_end(axis: str, end: float) -> str:
    """Format the end of an axis with its unit: 1,000 steps, 2.05 M tokens, 12.5 min."""
    if axis == "step":
        return f"{end:,.0f} steps"
    if axis == "tokens":
        return f"{short(end)} tokens"
    factor, unit = unit_of(end)
    return f"{end / factor:.3g} {unit}"


def unit_of(seconds: float) -> tuple[float, str]:
    """Choose the unit for times up to `seconds`: the seconds that it has, and its name."""
    return next(((factor, unit) for factor, unit in _UNITS if seconds >= 2 * factor), (1, "s"))
