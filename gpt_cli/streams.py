"""Randomness as a function of (seed, step): streams with names, never shared, with nothing to save.

Every random choice of the program comes from a key made of the seed and the names of its purpose ("dropout", step,
layer, ...). A resumed run therefore draws what an uninterrupted one would have drawn, and a draw in one place never
disturbs another.
"""

from __future__ import annotations

import hashlib

import numpy as np

# the two multipliers of "lowbias32", a 32-bit mixing function found by search (C. Wellons, hash-prospector)
MULTIPLIERS = (0x7FEB352D, 0x846CA68B)


def stream_key(seed: int, *names: str | int) -> int:
    """A 64-bit key for the stream `names` under `seed`: well mixed, the same on every machine."""
    text = repr((seed, *names)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def random_words(key: int, start: int, count: int) -> np.ndarray:
    """Words start..start+count of the stream `key`: uint32 [count], two keyed rounds of lowbias32.

    For one key the map from position to word is one to one on 32 bits.
    """
    words = np.arange(start, start + count, dtype=np.uint64).astype(np.uint32)
    for half in (key & 0xFFFFFFFF, key >> 32):
        words += np.uint32(half)
        for shift, multiplier in zip((16, 15), MULTIPLIERS, strict=True):
            words ^= words >> np.uint32(shift)
            words *= np.uint32(multiplier)
        words ^= words >> np.uint32(16)
    return words


def signed(number: int, bits: int) -> int:
    """The signed number of the same lowest `bits`, as in torch, which has no unsigned arithmetic."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def permutation(key: int, count: int) -> np.ndarray:
    """The numbers 0..count-1 in an order that depends on `key`: int64 [count]."""
    return np.argsort(random_words(key, 0, count), kind="stable")
