"""The training loss without most of its noise: one figure for each step, which every command and page shows."""

from __future__ import annotations

import math

import numpy as np

_MOST = 20.0  # losses
_FROM = 77  # the step from which a loss weighs 1 / _MOST


def smoothed(mean: float | None, loss: float, step: int) -> float:
    """The mean of the losses of all steps, most of it of the last quarter of them, or of the last twenty.

    After the loss x of step n it is m + (x - m) / min(1 + (n - 1) / 4, 20), where m is the mean before it: an
    exponential mean that begins with the first loss. Without a mean before, it is the loss.
    """
    return loss if mean is None else mean + (loss - mean) * _weight(step)


def filled(steps: np.ndarray, losses: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The smoothed losses of lines of metrics; one that a line lacks (NaN) is estimated. All [lines] float64.

    Earlier versions logged the loss alone: there, each step since the line before counts as if it had had this loss.
    """
    found, mean, before = known.copy(), math.nan, 0
    for place, (step, loss) in enumerate(zip(steps.tolist(), losses.tolist(), strict=True)):
        if math.isnan(found[place]) and not math.isnan(loss):
            found[place] = loss if math.isnan(mean) else loss + (mean - loss) * _share_left(before, int(step))
        if not math.isnan(found[place]):
            mean, before = found[place], int(step)
    return found


def _weight(step: int) -> float:
    return 1 / min(1 + (step - 1) / 4, _MOST)


def _share_left(before: int, step: int) -> float:
    """How much of the mean after the step `before` is left in the one after `step`."""
    first = math.prod(1 - _weight(n) for n in range(before + 1, min(step + 1, _FROM)))
    return first * (1 - 1 / _MOST) ** max(0, step + 1 - max(before + 1, _FROM))
