"""How much of a model's text is copied from its training text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def longest_shared_run(sample: str, text: str) -> str:
    """The longest run of characters that both contain; the first of several."""
    longest = ""
    for start in range(len(sample)):
        # only longer runs matter, so each length is tried once
        while start + len(longest) < len(sample) and sample[start : start + len(longest) + 1] in text:
            longest = sample[start : start + len(longest) + 1]
    return longest


def copied_share(samples: Sequence[Sequence[int]], training_ids: np.ndarray, n: int) -> float | None:
    """The share of the samples' n-grams of tokens that the training ids contain; None if no sample has n tokens."""
    ngrams = [tuple(sample[i : i + n]) for sample in samples for i in range(len(sample) - n + 1)]
    if not ngrams:
        return None
    wanted = set(ngrams)
    first = {ngram[0] for ngram in wanted}
    starts = np.flatnonzero(np.isin(training_ids[: len(training_ids) - n + 1], list(first)))
    present = {ngram for ngram in (tuple(training_ids[i : i + n].tolist()) for i in starts) if ngram in wanted}
    return sum(ngram in present for ngram in ngrams) / len(ngrams)
