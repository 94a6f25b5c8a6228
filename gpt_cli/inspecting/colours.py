"""The colours of weights in terminals and on the page: viridis, as in the pictures of matplotlib."""

from __future__ import annotations

import math

# viridis in sixteen steps; it grows lighter evenly, so it is readable in grey too (S. van der Walt, N. Smith, 2015)
_VIRIDIS = """
440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c
1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725
"""
STEPS = tuple(_VIRIDIS.split())


def colour_of(weight: float) -> tuple[int, int, int]:
    """Red, green and blue, 0 to 255, for a weight of 0 to 1: by its square root, so that small weights are visible."""
    place = math.sqrt(weight) * (len(STEPS) - 1)
    step = min(len(STEPS) - 2, int(place))
    low, high = bytes.fromhex(STEPS[step]), bytes.fromhex(STEPS[step + 1])
    red, green, blue = (round(a + (b - a) * (place - step)) for a, b in zip(low, high, strict=True))
    return red, green, blue
