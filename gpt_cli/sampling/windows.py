"""The length of the windows in which a model reads a long text. Needs no torch."""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpt_cli.config import ModelConfig

WEIGHTS_AT_ONCE = 2**28  # of attention in one block; 16 windows of 1,024 tokens and 12 heads have fewer


def window_length(sizes: ModelConfig) -> int:
    """Return the tokens of a window: context_length, or fewer if a block would have over WEIGHTS_AT_ONCE weights.

    These are attention weights. A shortened window is the largest power of two that fits: 4,096 tokens for 16 heads.
    """
    return min(sizes.context_length, 1 << (isqrt(WEIGHTS_AT_ONCE // sizes.num_heads).bit_length() - 1))
