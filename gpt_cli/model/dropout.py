"""Dropout whose masks are a function of seed, step, sequence, block and tensor, so no random state is saved or shared.

A counter-based hash replaces the generator. So the masks are the same on every device and for every split
of a batch, and cost far less on a CPU than torch's serial Bernoulli draws (note 0003 has the measurement).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.common.rng import MULTIPLIERS, signed, stream_key

_LANES = 2**16  # each 32-bit word gives two lanes of 16 bits
_SITES = "weights", "attention", "feed_forward"


class Keep(NamedTuple):
    """A block's dropout masks, for attention weights, attention output and feed-forward: True where an entry stays."""

    weights: Tensor | DropMasks  # [B, H, T, T], or the source from which a kernel draws it
    attention: Tensor  # [B, T, D]
    feed_forward: Tensor  # [B, T, D]


class DropMasks(NamedTuple):
    """The source of a micro-batch's dropout masks: keys, the index of its first sequence in the step, and the rate.

    `keys` are those of `drop_keys`, uint64 [L, 3], or their `key_halves` on the device, int32 [L, 3, 2]; for the masks
    of a single block, [3] or [3, 2]. With keys on the device, `GPT.forward` moves `first_sequence` there too.
    """

    keys: np.ndarray | Tensor
    first_sequence: int | Tensor
    rate: float

    def keep(self, site: str, shape: Sequence[int], device: torch.device) -> Tensor:
        """Draw the mask of one site (weights, attention or feed_forward): bool [B, ...], True where an entry stays."""
        key = self.keys[_SITES.index(site)]
        per_sequence = math.prod(shape[1:])
        words = (per_sequence + 1) // 2
        start, count = _int32(self.first_sequence * words), shape[0] * words
        if torch.compiler.is_compiling():
            lanes = _lanes(key, start, count, device)
        else:
            lanes = random_words_on_device(key, start, count, device).view(torch.int16)
        lanes = lanes.view(shape[0], 2 * words)[:, :per_sequence]
        return (lanes >= round(self.rate * _LANES) - _LANES // 2).view(*shape)


def drop_keys(seed: int, step: int, num_blocks: int) -> np.ndarray:
    """Return the 64-bit keys of all dropout masks of a step, three for each block: uint64 [L, 3], for `key_halves`."""
    keys = [stream_key(seed, "dropout", step, block, site) for block in range(num_blocks) for site in _SITES]
    return np.array(keys, np.uint64).reshape(num_blocks, len(_SITES))


def key_halves(keys: Tensor) -> Tensor:
    """Split 64-bit keys into 32-bit halves, the lower half first: int64 [L, 3] -> int32 [L, 3, 2]."""
    return keys.view(torch.int32).view(*keys.shape, 2)


def random_words_on_device(key: int | Tensor, start: int | Tensor, count: int, device: torch.device) -> Tensor:
    """Compute words start..start+count-1 of a random stream with torch, as `rng.random_words` does: int32 [count].

    `key` is a number of 64 bits, or its two halves on the device, the lower half first: int32 [2].
    """
    words = torch.arange(count, dtype=torch.int32, device=device)
    words += _int32(start)
    return _mixed(words, _halves(key))


def _lanes(key: int | Tensor, start: int | Tensor, count: int, device: torch.device) -> Tensor:
    """Return `count` random words from `start` on, each as two 16-bit numbers, lower half first: int32 [2 x count].

    An int16 view of the words has the same numbers, but torch.compile can fuse this code with the caller. From number
    2^31 on, the int32 indices are negative: the right shift copies their sign bit, and 0x7FFFFFFF removes the copy.
    """
    indices = torch.arange(2 * count, dtype=torch.int32, device=device)
    words = _mixed(((indices >> 1) & 0x7FFFFFFF) + start, _halves(key))
    return (words << (16 - 16 * (indices & 1))) >> 16


def _mixed(words: Tensor, halves: Sequence[int | Tensor]) -> Tensor:
    """Hash `words`, int32 [N], in place: for each half of a key, add the half, then apply lowbias32; return `words`."""
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


def _halves(key: int | Tensor) -> Sequence[int | Tensor]:
    return key.unbind() if isinstance(key, Tensor) else (_int32(int(key)), _int32(int(key) >> 32))


def _int32(number: int | Tensor) -> int | Tensor:
    """Return the lowest 32 bits of an int as a signed int; return an int32 tensor unchanged."""
    return number if isinstance(number, Tensor) else signed(number, 32)


class Dropout(nn.Dropout):
    """nn.Dropout that also accepts a mask, True where an entry stays; in evaluation mode, nothing is dropped."""

    def forward(self, input: Tensor, keep: Tensor | None = None) -> Tensor:  # noqa: A002
        return drop_out(input, keep, self.p) if self.training and self.p else input


def drop_out(x: Tensor, keep: Tensor | None, rate: float) -> Tensor:
    """Zero the entries of x where `keep` is False (None: a random mask); multiply all others by 1 / (1 - rate).

    Srivastava et al. 2014, section 10.
    """
    if keep is None:
        return F.dropout(x, rate)
    # a product is several times faster on a CPU than masked_fill or where, forward and backward
    return x * (keep.to(x.dtype) * (1 / (1 - rate)))
