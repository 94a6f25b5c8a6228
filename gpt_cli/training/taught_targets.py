"""Replace some training targets by tokens drawn from a teacher or n-gram counts; seed and step number decide which."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpt_cli.common.rng import random_words, stream_key

# shares of the targets, once there is a teacher; of the last of several models, the teachers' share (notes 0066, 0073)
TEACHER, COUNTS, OF_LAST = 0.35, 0.15, 0.85
TARGETS_OF_LAST = 8  # of each position in a step of the last of several models
# limits: stored tokens for each position, those of them that are drawn from all less probable tokens, and numbers in
# an array; the integer for probability 1
MOST_LIKELY, FROM_TAIL, NUMBERS, CERTAIN = 512, 32, 2**25, 2**16 - 1
BYTES_PER_TOKEN = 350  # of memory, at most, while the text is counted
ORDER = 8  # the longest context that is counted, in tokens
_ROUNDS = 12  # of fitting how much a context is trusted


def num_stored(vocab_size: int, num_tokens: int) -> int:
    """Return how many tokens of a teacher's prediction are stored for each token of a text of `num_tokens`."""
    return min(vocab_size, MOST_LIKELY, max(2 * FROM_TAIL, NUMBERS // num_tokens))


def teaching_bytes(vocab_size: int, num_tokens: int) -> int:
    """Estimate the bytes of memory that targets of teachers take for a text of `num_tokens`."""
    of_stored = 4 if vocab_size <= 2**16 else 6  # an id and a probability
    return num_tokens * (BYTES_PER_TOKEN + of_stored * num_stored(vocab_size, num_tokens))


@dataclass
class TaughtTargets:
    """A callable that returns a step's targets: ids of a text, some replaced by random ids once there is a teacher.

    For the N indices of the text, `likely` [N, k] has a teacher's most probable ids, and `cumulative` [N, k] their
    cumulative probabilities (`mean_probabilities`). Some random ids are drawn from `likely`, the others from n-gram
    counts of the text. Random targets hinder memorising a short text.
    """

    ids: np.ndarray
    seed: int
    likely: np.ndarray | None = None
    cumulative: np.ndarray | None = None
    num_targets: int = 1  # of each position; they are equal until `is_last`
    is_last: bool = False  # whether the model is the last of more than two, which learns from teachers and counts alone

    @cached_property
    def counts(self) -> NgramCounts:
        return NgramCounts(self.ids)

    def __call__(self, positions: np.ndarray, step: int) -> np.ndarray:
        """Return ids for the targets at text indices `positions` [B, T], N = `num_targets` each: int64 [B, T * N]."""
        if not self.is_last:
            return np.repeat(self._drawn(positions, step, TEACHER), self.num_targets, axis=1)
        return self._drawn(np.repeat(positions, self.num_targets, axis=1), step, OF_LAST)

    def _drawn(self, positions: np.ndarray, step: int, teacher: float) -> np.ndarray:
        """Draw ids [B, T]: the teacher's with probability `teacher`, by n-gram counts with 0.15, else the text's."""
        targets = self.ids[positions]
        if self.likely is None or self.cumulative is None:
            return targets
        uniform = random_words(stream_key(self.seed, "taught", step), 0, positions.size) / 2.0**32
        of_teacher = np.flatnonzero(uniform < teacher)
        flat, drawn = positions.ravel(), targets.ravel()
        at, below = flat[of_teacher], (uniform[of_teacher] / teacher * CERTAIN).astype(np.uint16)
        drawn[of_teacher] = self.likely[at, (self.cumulative[at] <= below[:, None]).sum(axis=1)]
        counted = np.flatnonzero((uniform >= teacher) & (uniform < teacher + COUNTS))
        drawn[counted] = self.counts.draw(flat[counted], (uniform[counted] - teacher) / COUNTS)
        return drawn.reshape(positions.shape)


class NgramCounts:
    """An interpolated n-gram model that draws next tokens from counts, with contexts of 0 to ORDER tokens.

    A draw tries the longest context first, and uses it with a probability that depends on its length, its count at
    other positions and the number of different tokens after it; else the draw tries the next shorter context. The
    probabilities maximise the likelihood of the text, each position left out in turn (Jelinek and Mercer 1980).
    """

    def __init__(self, ids: np.ndarray):
        """Count the n-grams of training ids, int64 [N], N >= 2."""
        self.ids = ids
        vocab_size, count = int(self.ids.max()) + 2, len(ids)  # one more id fills contexts before the text
        context = np.zeros(count, np.int64)  # numbers of contexts, sorted by their last token, then by the one before
        likelihood = np.full(count, 1 / vocab_size)
        # of each order: each position's context, where the positions of a context begin, and the probability to use it
        self.orders: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for order in range(ORDER + 1):
            if order:
                before = np.concatenate((np.full(min(order, count), vocab_size - 1), self.ids[: max(0, count - order)]))
                context = np.unique(context * vocab_size + before, return_inverse=True)[1]
            pairs, pair, times = np.unique(context * vocab_size + self.ids, return_inverse=True, return_counts=True)
            elsewhere, agreeing = np.bincount(context)[context] - 1, times[pair] - 1
            followers = np.bincount(pairs // vocab_size)[context] - (agreeing == 0)
            share_agreeing = agreeing / np.maximum(1, elsewhere)
            decides = _trust(elsewhere, followers, share_agreeing, likelihood)
            likelihood = decides * share_agreeing + (1 - decides) * likelihood
            starts = np.concatenate(([0], np.cumsum(np.bincount(context))))
            self.orders.append((context.astype(np.int32), starts, decides.astype(np.float32)))
        self.orders[0][2][:] = 1.0  # the shortest context always decides
        # contexts of fewer tokens have neighbouring numbers, so one order of positions serves all
        self.positions = np.argsort(context, kind="stable")
        self.inverse = np.empty_like(self.positions)
        self.inverse[self.positions] = np.arange(count)

    def draw(self, positions: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Draw a target for each position [M], int64 [M]; `uniform` has random numbers in [0, 1), float64 [M]."""
        targets, left, rest = np.empty(len(positions), np.int64), np.arange(len(positions)), uniform
        for contexts, starts, decides in reversed(self.orders):
            here = positions[left]
            share, context = decides[here].astype(np.float64), contexts[here]
            taken = rest < share
            first, count = starts[context[taken]], np.diff(starts)[context[taken]] - 1
            at = first + (rest[taken] / share[taken] * count).astype(np.int64).clip(max=count - 1)
            at += at >= self.inverse[here[taken]]  # skips the position's own token
            targets[left[taken]] = self.ids[self.positions[at]]
            left, rest = left[~taken], (rest[~taken] - share[~taken]) / (1 - share[~taken])
        return targets


def _trust(elsewhere: np.ndarray, followers: np.ndarray, agreeing: np.ndarray, shorter: np.ndarray) -> np.ndarray:
    """Return the probability that each position uses its context, float64 [N]; similar counts share one value.

    `elsewhere` counts the other occurrences of a position's context, `followers` the different tokens after them.
    `agreeing` is the share of other occurrences that the position's token follows, `shorter` the probability that
    shorter contexts give that token. _ROUNDS passes of expectation maximisation fit the values.
    """
    kinds = np.where(elsewhere > 0, 4 * np.log2(np.maximum(1, elsewhere)).astype(np.int64) + followers.clip(1, 4), 0)
    trust, sizes = np.full(kinds.max() + 1, 0.5), np.maximum(1, np.bincount(kinds))
    for _ in range(_ROUNDS):
        mine = trust[kinds] * agreeing
        trust = np.bincount(kinds, mine / (mine + (1 - trust[kinds]) * shorter)) / sizes
        trust = trust.clip(max=1 - 1e-6)
    return np.where(elsewhere > 0, trust[kinds], 0.0)
