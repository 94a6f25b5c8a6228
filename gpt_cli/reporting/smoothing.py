"""A loss without most of its noise, by one formula in the progress of a training and in its report."""

from __future__ import annotations

_MOST = 20.0  # losses


class SmoothedLoss:
    """A mean of the losses so far, most of it of the last quarter of them, or of the last twenty.

    After the n-th loss x it is m + (x - m) / min(1 + (n - 1) / 4, 20), where m is the mean before: an exponential mean
    that begins with the first loss instead of 0.
    """

    def __init__(self) -> None:
        self._mean, self._num_losses = 0.0, 0

    def add(self, loss: float) -> float:
        """The mean with one more loss."""
        self._mean += (loss - self._mean) / min(1 + self._num_losses / 4, _MOST)
        self._num_losses += 1
        return self._mean
