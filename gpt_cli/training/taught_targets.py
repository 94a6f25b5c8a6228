"""Training targets: next tokens, some replaced by draws from a teacher or n-gram counts; a function of (seed, step)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpt_cli.common.rng import random_words, stream_key
from gpt_cli.training.ngram_counts import NgramCounts

# shares of the targets, once there is a teacher (note 0066)
TEACHER, COUNTS = 0.35, 0.15
BYTES_PER_TOKEN = 350  # of memory, at most, while the text is counted; the draws of a teacher included


@dataclass
class TaughtTargets:
    """Targets: ids of a text, int64 [N], some replaced by a teacher's `draws` [N, draws per id], None if no teacher.

    A step picks each draw with the same probability, so the mean gradient is that of the teacher's probabilities. If
    all targets were next tokens, a model that reads a short text many times would memorise the text.
    """

    ids: np.ndarray
    seed: int
    draws: np.ndarray | None = None

    @cached_property
    def counts(self) -> NgramCounts:
        return NgramCounts(self.ids)

    def __call__(self, positions: np.ndarray, step: int) -> np.ndarray:
        """Return the targets of a step for text indices `positions` [B, T]: int64 [B, T] ids, some of them drawn."""
        targets = self.ids[positions]
        if self.draws is None:
            return targets
        uniform = random_words(stream_key(self.seed, "taught", step), 0, positions.size) / 2.0**32
        of_teacher = np.flatnonzero(uniform < TEACHER)
        columns = (uniform[of_teacher] / TEACHER * self.draws.shape[1]).astype(np.int64)
        flat, drawn = positions.ravel(), targets.ravel()
        drawn[of_teacher] = self.draws[flat[of_teacher], columns]
        counted = np.flatnonzero((uniform >= TEACHER) & (uniform < TEACHER + COUNTS))
        drawn[counted] = self.counts.draw(flat[counted], (uniform[counted] - TEACHER) / COUNTS)
        return drawn.reshape(positions.shape)
