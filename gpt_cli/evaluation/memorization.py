"""Measure memorization: how much of a model's samples occurs in its training text, which may be larger than memory.

`longest_shared_run` and `copied_share` compare hashes of n symbols, a million at once, then check the few matches.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from gpt_cli.common.chunks import gathered
from gpt_cli.text.tokenizers import code_points

WINDOW = 2**20  # characters or tokens that are searched at once
_BASE = 0x9E3779B97F4A7C15  # an odd number has an inverse modulo 2**64
_INVERSE = pow(_BASE, -1, 2**64)
_TABLE_BITS = 20


def longest_shared_run(samples: Sequence[str], text: Iterable[str]) -> str:
    """Return the longest substring of any sample that occurs in a text, whose blocks `text` yields in order.

    If several are equally long, return the one that comes first in the samples.
    """
    places = [(sample, start) for sample in samples for start in range(len(sample))]
    longest, number_of_longest = "", -1
    overlap, window = max(map(len, samples), default=0) - 1, ""
    for block in gathered(text, WINDOW):
        window = window[max(0, len(window) - overlap) :] + block  # a run may begin in the block before
        # only longer runs matter, and equally long ones that come before
        for number in _places_to_try(samples, window, len(longest)):
            sample, start = places[number]
            length = len(longest) + (number >= number_of_longest)
            while start + length <= len(sample) and sample[start : start + length] in window:
                longest, number_of_longest = sample[start : start + length], number
                length += 1
    return longest


def copied_share(samples: Sequence[Sequence[int]], training_ids: Iterable[np.ndarray], n: int) -> float | None:
    """Return the share (0 to 1) of the samples' n-grams of tokens that occur in a text; None if no sample has n tokens.

    `training_ids` yields the ids of the text in order, in arrays [N].
    """
    ngrams = [tuple(sample[i : i + n]) for sample in samples for i in range(len(sample) - n + 1)]
    if not ngrams:
        return None
    missing = set(ngrams)
    # the n-grams one after the other: every n-th position begins one
    hashes = _hashes(np.array(sorted(missing)).reshape(-1), n)[::n]
    left = np.empty(0, np.int64)
    for chunk in training_ids:
        ids = np.concatenate((left, chunk))
        for start in _where(_hashes(ids, n), hashes):
            missing.discard(tuple(ids[start : start + n].tolist()))
        left = ids[max(0, len(ids) - n + 1) :]
    return sum(ngram not in missing for ngram in ngrams) / len(ngrams)


def _places_to_try(samples: Sequence[str], window: str, n: int) -> Sequence[int]:
    """Return the positions in the joined samples whose next n characters may occur in the window."""
    if n == 0:
        return range(sum(map(len, samples)))
    numbers, hashes, first = [], [], 0
    for sample in samples:
        hashes.append(_hashes(code_points(sample), n))
        numbers.append(first + np.arange(len(hashes[-1])))
        first += len(sample)
    wanted, window_hashes = np.concatenate(hashes), _hashes(code_points(window), n)
    return np.concatenate(numbers)[np.isin(wanted, window_hashes[_where(window_hashes, wanted)])].tolist()


def _hashes(symbols: np.ndarray, n: int) -> np.ndarray:
    """Return a hash of the n symbols that begin at each position: [N] -> uint64 [N - n + 1], empty if N < n.

    The hash is the polynomial of the symbols at _BASE, modulo 2**64, from prefix sums (Karp and Rabin 1987).
    """
    length = max(0, len(symbols) - n + 1)
    sums = np.zeros(len(symbols) + 1, np.uint64)
    np.cumsum(symbols.astype(np.uint64) * _powers(_BASE, len(symbols)), out=sums[1:])
    return (sums[n : n + length] - sums[:length]) * _powers(_INVERSE, length)


def _powers(base: int, count: int) -> np.ndarray:
    """Return 1, base, base**2, ... modulo 2**64: uint64 [count]."""
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.cumprod(powers)


def _where(hashes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the indices of those `hashes` that are also in `wanted`: int64 [hits]."""
    table = np.zeros(2**_TABLE_BITS, bool)
    shift = np.uint64(64 - _TABLE_BITS)
    table[wanted >> shift] = True
    close = np.flatnonzero(table[hashes >> shift])
    return close[np.isin(hashes[close], wanted)]
