"""Length of the windows in which a model reads a text. Needs no torch."""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpt_cli.config import ModelConfig

WEIGHTS_AT_ONCE = 2**28  # of attention in one block; 16 windows of 1,024 tokens and 12 heads have fewer


def window_length(sizes: ModelConfig) -> int:
    """Tokens of a window: context_length, or the largest power of two with up to WEIGHTS_AT_ONCE weights in a block.

    A model of 16 heads is evaluated in windows of 4,096 tokens at most.
    """
    return min(sizes.context_length, 1 << (isqrt(WEIGHTS_AT_ONCE // sizes.num_heads).bit_length() - 1))
