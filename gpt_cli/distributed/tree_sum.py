"""Sum the micro-batches of a step in an order that is the same for any number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor


def tree_sum(terms: Sequence[Tensor]) -> Tensor:
    """Return the sum of terms in a fixed tree: in halves while their number is even, else from left to right.

    Eight terms are ((a + b) + (c + d)) + ((e + f) + (g + h)). W ranks, W a power of two that divides the number of
    terms, hold one branch each, so they agree with a single process to the last bit.
    """
    if len(terms) % 2:
        return reduce(torch.add, terms)
    half = len(terms) // 2
    return tree_sum(terms[:half]) + tree_sum(terms[half:])
