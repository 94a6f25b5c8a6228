"""The curves of a run: what is drawn against what, less noisy, and in fewer points. Needs no torch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gpt_cli.reporting.record import RunRecord
from gpt_cli.reporting.smoothing import SmoothedLoss

# nats per token, the same of the validation text, bits per byte, -, norm of the whole gradient, of training steps alone
QUANTITIES = ("loss", "validation_loss", "bits_per_byte", "learning_rate", "gradient_norm", "tokens_per_second")
AXES = ("step", "tokens", "seconds")  # seconds of training steps


def curve(record: RunRecord, quantity: str, axis: str = "step") -> tuple[np.ndarray, np.ndarray]:
    """The points of one of QUANTITIES against one of AXES: x and y, both float64, the numbers of metrics.jsonl.

    A line that lacks one of the two, or where one is not finite, has no point.
    """
    x, y = record.metrics[axis], record.metrics[quantity]
    there = np.isfinite(x) & np.isfinite(y)
    return x[there], y[there]


def smoothed(losses: np.ndarray) -> np.ndarray:
    """For each loss the mean of those up to it, by the formula of the progress of `gpt train`."""
    mean = SmoothedLoss()
    return np.array([mean.add(loss) for loss in losses.tolist()])


def thinned(y: np.ndarray, most: int) -> np.ndarray:
    """The places of at most `most` points, 4 or more, that look like all of `y`: first, last, minima and maxima.

    Of stretches of equally many points, the lowest and the highest are kept; all places where y has few.
    """
    if len(y) <= most:
        return np.arange(len(y))
    ends = np.linspace(0, len(y), (most - 2) // 2 + 1).astype(int)
    found = {0, len(y) - 1}
    for begin, end in pairwise(ends):
        stretch = y[begin:end]
        found |= {int(begin + stretch.argmin()), int(begin + stretch.argmax())}
    return np.array(sorted(found))
