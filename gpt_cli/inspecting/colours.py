"""The colours of weights, the same in terminals and on the page, and what matplotlib calls viridis."""

from __future__ import annotations

import math

# sixteenths of viridis, which grows lighter evenly and so is readable in grey too (S. van der Walt, N. Smith, 2015)
STEPS = (
    "440154", "48186a", "472d7b", "424086", "3b528b", "33638d", "2c728e", "26828e", "21918c",
    "1fa088", "28ae80", "3fbc73", "5ec962", "84d44b", "addc30", "d8e219", "fde725",
)  # fmt: skip


def colour_of(weight: float) -> tuple[int, int, int]:
    """Red, green and blue, 0 to 255, of a weight of 0 to 1: by its square root, so that small weights show."""
    place = math.sqrt(weight) * (len(STEPS) - 1)
    step = min(len(STEPS) - 2, int(place))
    low, high = bytes.fromhex(STEPS[step]), bytes.fromhex(STEPS[step + 1])
    red, green, blue = (round(a + (b - a) * (place - step)) for a, b in zip(low, high, strict=True))
    return red, green, blue
