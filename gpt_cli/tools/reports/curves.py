"""Prepare curves for drawing: select points, scale values, and format numbers, axis ends and the letters of runs."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gpt_cli.errors import counted

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
    """Return the indices of at most `most` (4 or more) points of a curve `y`; drawn, they look like the whole curve.

    Keeps all of a short `y`, else both ends, and the lowest and highest point of each of (most - 2) // 2 equal parts.
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
    """The y axis of a panel (one plot in a drawing): the values at its bottom and top; `log` makes it logarithmic."""

    low: float
    high: float
    log: bool = False

    def height(self, values: np.ndarray) -> np.ndarray:
        """Return the heights of values in the panel, from 0 (bottom) to 1 (top)."""
        low, high = (math.log(end) if self.log else end for end in self[:2])
        scaled = np.log(values) if self.log else values
        return np.clip((scaled - low) / (high - low), 0.0, 1.0)

    def value(self, height: float) -> float:
        """Return the value at a height from 0 (bottom) to 1 (top) in the panel."""
        if self.log:
            return self.low * (self.high / self.low) ** height
        return self.low + (self.high - self.low) * height


def scale_of(quantity: str, curves: Sequence[np.ndarray]) -> Scale:
    """Return a scale for curves of `quantity`: from 0 for learning rate and tokens/s, logarithmic for a wide range."""
    values = [end for curve in curves if len(curve) for end in (float(curve.min()), float(curve.max()))]
    if not values:
        return Scale(0.0, 1.0)
    low, high = min(values), max(values)
    if quantity in _FROM_ZERO and low >= 0:
        return Scale(0.0, high or 1.0)
    if low == high:
        return Scale(low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2)
    return Scale(low, high, log=is_steep(low, high))


def is_steep(low: float, high: float) -> bool:
    """Return whether values from `low` to `high` need a logarithmic scale."""
    return low > 0 and high > _STEEP * low


def letter_of(run: int) -> str:
    """Return a legend's name for the run or group with index `run`: a to z, then 27, 28, ..."""
    return chr(ord("a") + run) if run < 26 else str(run + 1)


def short(number: float) -> str:
    """Format a number in at most four significant digits: 3.353, 7,397, 12.4 k, 1e-04."""
    # rounded first: 9,999.6 is 10 k, and 999,600 is 1 M
    size = abs(float(f"{number:.{4 if abs(number) < 1e4 else 3}g}"))
    if size >= 1e12 or 0 < size < 1e-3:
        return f"{number:.1e}".replace(".0e", "e")
    for unit, factor in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if size >= 10 * factor or (factor > 1e3 and size >= factor):
            return f"{number / factor:.3g}{unit}"
    return f"{number:,.4g}"


def axis_end(axis: str, end: float) -> str:
    """Format the largest value of an x axis with its unit: 1,000 steps, 2.05 M tokens, 12.5 min."""
    if axis == "step":
        return counted(round(end), "step")
    if axis == "tokens":
        return f"{short(end)} tokens"
    factor, unit = unit_of(end)
    return f"{end / factor:.3g} {unit}"


def unit_of(seconds: float) -> tuple[float, str]:
    """Return the unit for times up to `seconds`: its length in seconds and its name, such as (60, "min")."""
    return next(((factor, unit) for factor, unit in _UNITS if seconds >= 2 * factor), (1, "s"))
