"""Random numbers as a function of the seed and the name of a stream; no stream has a state to save.

Every random choice of the program comes from a key made of the seed and the names of its purpose ("dropout", step,
layer, ...). A resumed run therefore draws the same numbers as an uninterrupted run, and no draw changes another draw.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

# the two multipliers of "lowbias32", a 32-bit mixing function found by search (C. Wellons, hash-prospector)
MULTIPLIERS = (0x7FEB352D, 0x846CA68B)


def stream_key(seed: int, *names: str | int) -> int:
    """Return a 64-bit key for the random stream `names` under `seed`: a hash, the same on every machine.

    torch.Generator, which draws samples and initial weights, uses only the lowest 32 bits of the key, so two of N such
    streams coincide with a probability of about N^2 / 2^33.
    """
    return int.from_bytes(hashlib.blake2b(repr((seed, *names)).encode(), digest_size=8).digest(), "little")


def random_words(key: int, start: int, count: int) -> np.ndarray:
    """Return the random 32-bit words start..start+count-1 of stream `key`, whose words all differ: uint32 [count]."""
    words = np.arange(start, start + count, dtype=np.uint64).astype(np.uint32)
    return _mixed(words, (key & 0xFFFFFFFF, key >> 32))


def _mixed(words: np.ndarray, keys: Sequence[int]) -> np.ndarray:
    """Hash 32-bit words [N] in place: for each key, add the key, then apply lowbias32; return the words."""
    for key in keys:
        words += np.uint32(key)
        for shift, multiplier in zip((16, 15), MULTIPLIERS, strict=True):
            words ^= words >> np.uint32(shift)
            words *= np.uint32(multiplier)
        words ^= words >> np.uint32(16)
    return words


def signed(number: int, bits: int) -> int:
    """Return the lowest `bits` bits of `number` in two's complement, because torch has no unsigned arithmetic."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def permutation(key: int, count: int) -> np.ndarray:
    """Return a random permutation of 0..count-1 that `key` determines: int64 [count]."""
    return np.argsort(random_words(key, 0, count), kind="stable")


def permuted(key: int, indices: np.ndarray, count: int) -> np.ndarray:
    """Return the elements at `indices` of a random permutation of 0..count-1, without listing it: int64 [N] -> [N].

    Unlike `permutation`, it uses a Feistel network (Luby and Rackoff 1988) with cycle walking (Black and Rogaway 2002).
    """
    assert 0 < count <= 2**62
    bits = (count - 1).bit_length()
    keys = random_words(key, 0, 4)
    images = indices.astype(np.uint64)
    outside = np.arange(len(images))
    while len(outside):
        images[outside] = _feistel(keys, images[outside], bits)
        outside = outside[images[outside] >= count]
    return images.astype(np.int64)


def _feistel(keys: np.ndarray, numbers: np.ndarray, bits: int) -> np.ndarray:
    """Permute numbers below 2**bits by a Feistel network: each round changes one half of the bits by the other half."""
    num_low = bits // 2
    low, high = numbers & np.uint64(2**num_low - 1), numbers >> np.uint64(num_low)
    for first, second in keys.reshape(2, 2):
        high ^= _mixed(low.astype(np.uint32), [first]) & np.uint64(2 ** (bits - num_low) - 1)
        low ^= _mixed(high.astype(np.uint32), [second]) & np.uint64(2**num_low - 1)
    return high << np.uint64(num_low) | low
