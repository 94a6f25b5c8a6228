"""Dropout whose masks are a function of (seed, step, sequence, block, site): nothing to save, nothing shared.

The masks come from a counter-based hash instead of a generator. They are the same on every device and for every split
of a batch, and on a CPU they cost far less than torch's serial Bernoulli draws (NOTES.md has the measurement).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.streams import MULTIPLIERS, signed, stream_key

_LANES = 2**16  # each 32-bit word gives two lanes of 16 bits
_SITES = "weights", "attention", "feed_forward"


class Keep(NamedTuple):
    """The masks of a block's three places of dropout: True where an entry stays."""

    weights: Tensor  # [B, H, T, T]
    attention: Tensor  # [B, T, D]
    feed_forward: Tensor  # [B, T, D]


@dataclass(frozen=True)
class DropMasks:
    """The masks of one training step; `first_sequence` is the number of the batch's first sequence.

    Where the device has `keys`, int32 [blocks, 3, 2] as `drop_keys` gives them, these decide instead of seed and step.
    """

    rate: float
    seed: int
    step: int
    first_sequence: int = 0
    block: int = 0
    keys: Tensor | None = None

    def of_block(self, block: int) -> DropMasks:
        """The masks for another block of the model."""
        return replace(self, block=block)

    def draw(self, shape: Sequence[int], num_heads: int, device: torch.device) -> Keep:
        """All masks of the block for a batch of shape [B, T, D]."""
        B, T, _ = shape
        weights = self.keep("weights", (B, num_heads, T, T), device)
        return Keep(weights, self.keep("attention", shape, device), self.keep("feed_forward", shape, device))

    def keep(self, site: str, shape: Sequence[int], device: torch.device) -> Tensor:
        """False where an entry is dropped, each independently with the rate (to 2^-16): bool [B, ...]."""
        if self.keys is None:
            key = stream_key(self.seed, "dropout", self.step, self.block, site)
        else:
            key = self.keys[self.block, _SITES.index(site)]
        per_sequence = math.prod(shape[1:])
        words = (per_sequence + 1) // 2
        bits = random_words(key, self.first_sequence * words, shape[0] * words, device)
        lanes = bits.view(torch.int16).view(shape[0], 2 * words)[:, :per_sequence]
        return (lanes >= round(self.rate * _LANES) - _LANES // 2).view(*shape)


def drop_keys(seed: int, step: int, num_blocks: int) -> np.ndarray:
    """The keys of all masks of a step: uint64 [blocks, 3]; torch knows the two halves of each as int32."""
    keys = [stream_key(seed, "dropout", step, block, site) for block in range(num_blocks) for site in _SITES]
    return np.array(keys, np.uint64).reshape(num_blocks, len(_SITES))


def random_words(key: int | Tensor, start: int, count: int, device: torch.device) -> Tensor:
    """The words of `gpt_cli.streams.random_words`, computed by torch: the same bits as int32 [count].

    The key may be two halves on the device, the lower one first: int32 [2].
    """
    halves = key.unbind() if isinstance(key, Tensor) else (signed(key, 32), signed(key >> 32, 32))
    words = torch.arange(count, dtype=torch.int32, device=device)
    words += signed(start, 32)
    shifted = torch.empty_like(words)
    for half in halves:
        words += half
        for shift, multiplier in zip((16, 15, 16), (*MULTIPLIERS, 1), strict=True):
            # the shift of a signed number copies its sign, which the mask removes
            torch.bitwise_right_shift(words, shift, out=shifted)
            words ^= shifted.bitwise_and_((1 << (32 - shift)) - 1)
            if multiplier != 1:
                words *= signed(multiplier, 32)
    return words


class Dropout(nn.Dropout):
    """nn.Dropout that accepts a mask of what to keep; both act in training mode only."""

    def forward(self, input: Tensor, keep: Tensor | None = None) -> Tensor:  # noqa: A002
        return drop_out(input, keep, self.p) if self.training and self.p else input


def drop_out(x: Tensor, keep: Tensor | None, rate: float) -> Tensor:
    """Zero the entries that `keep` does not hold and scale the rest by 1 / (1 - rate); None lets torch draw.

    Srivastava et al. 2014, section 10.
    """
    if keep is None:
        return F.dropout(x, rate)
    # a product is several times faster on a CPU than masked_fill or where, forward and backward
    return x * (keep.to(x.dtype) * (1 / (1 - rate)))
