"""What a step trains on: windows of the corpus as a function of (seed, step)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from gpt_cli.config import Config
from gpt_cli.streams import permutation, stream_key


@dataclass(frozen=True)
class Batches:
    """Training batches, cut on the device that holds the ids: int32 [tokens].

    Each epoch cuts the ids into windows of context_length from an offset of its own, and visits the windows
    in an order of its own; both come from the seed and the number of the epoch, so nothing needs saving.
    """

    ids: Tensor
    context_length: int
    batch_size: int
    seed: int

    @classmethod
    def of(cls, ids: np.ndarray, config: Config, device: torch.device) -> Batches:
        """The batches that a config asks for; ids [tokens] are moved to a device."""
        on_device = torch.from_numpy(ids.astype(np.int32)).to(device)
        return cls(on_device, config.model.context_length, config.train.batch_size, config.train.seed)

    @property
    def max_offset(self) -> int:
        return max(0, min(self.context_length - 1, len(self.ids) - 1 - self.context_length))

    @property
    def windows_per_epoch(self) -> int:
        return max(1, (len(self.ids) - 1 - self.max_offset) // self.context_length)

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a step (counted from 0): int64 [B, T] each, targets one token ahead."""
        device = self.ids.device
        # only the starts travel to the device, and nobody waits for them, which keeps a GPU busy
        starts = torch.from_numpy(self.starts(step)).to(device, non_blocking=True)
        windows = self.ids[starts[:, None] + torch.arange(self.context_length + 1, device=device)].long()
        return windows[:, :-1], windows[:, 1:]

    def starts(self, step: int) -> np.ndarray:
        """The first position of each window of a step: int64 [B]."""
        numbers = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        epochs, places = np.divmod(numbers, self.windows_per_epoch)
        starts = np.empty(self.batch_size, np.int64)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            ordered = _starts(self.seed, int(epoch), self.windows_per_epoch, self.context_length, self.max_offset)
            starts[chosen] = ordered[places[chosen]]
        return starts


@lru_cache(maxsize=2)
def _starts(seed: int, epoch: int, num_windows: int, stride: int, max_offset: int) -> np.ndarray:
    """The first position of every window of an epoch, in the order of that epoch: int64 [num_windows]."""
    offset = stream_key(seed, "offset", epoch) % (max_offset + 1)
    return offset + permutation(stream_key(seed, "order", epoch), num_windows) * stride
