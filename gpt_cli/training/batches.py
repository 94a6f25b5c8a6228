"""What a step trains on: windows of the corpus as a function of (seed, step)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from gpt_cli.config import Config
from gpt_cli.machine.devices import send
from gpt_cli.streams import permutation, permuted, stream_key
from gpt_cli.text.token_store import Ids, TokensOnDisk

# an epoch of more windows has an order that is computed place by place: a list takes a second and 32 MB
LISTED_WINDOWS = 2**22


@dataclass(frozen=True)
class Batches:
    """Training batches, cut on the device that holds the ids, int32 [tokens], or read from the disk.

    Each epoch cuts the ids into windows of context_length from an offset of its own, and visits the windows
    in an order of its own; both come from the seed and the number of the epoch, so nothing needs saving.
    """

    ids: Tensor | TokensOnDisk
    context_length: int
    batch_size: int
    seed: int
    device: str = "cpu"  # of the batches that are read from the disk

    @classmethod
    def of(cls, ids: Ids, config: Config, device: torch.device) -> Batches:
        """The batches that a config asks for; ids [tokens] in memory are moved to the device."""
        moved = ids if isinstance(ids, TokensOnDisk) else torch.from_numpy(ids.astype(np.int32)).to(device)
        return cls(moved, config.model.context_length, config.train.batch_size, config.train.seed, str(device))

    @property
    def max_offset(self) -> int:
        return max(0, min(self.context_length - 1, len(self.ids) - 1 - self.context_length))

    @property
    def windows_per_epoch(self) -> int:
        return max(1, (len(self.ids) - 1 - self.max_offset) // self.context_length)

    def __call__(self, step: int, chosen: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the chosen sequences of a step (counted from 0): int64 [B, T] each.

        Targets are one token ahead.

        Raises DataError or EnvironmentFailure when the disk does not give what it should.
        """
        return self.windows(self.send(self.numbers(step, chosen)))

    def numbers(self, step: int, chosen: slice | np.ndarray = slice(None)) -> np.ndarray:
        """What the device needs of the chosen sequences of a step: where they start, int64 [B].

        Of ids that only the disk has, it needs the windows themselves, int32 [B, T + 1].
        """
        starts = self.starts(step)[chosen]
        if not isinstance(self.ids, TokensOnDisk):
            return starts
        windows = self.ids.windows(starts, self.context_length + 1).astype(np.int32)
        # the disk fetches them while this step is computed
        self.ids.announce(self.starts(step + 1)[chosen], self.context_length + 1)
        return windows

    def send(self, numbers: np.ndarray) -> Tensor:
        """The numbers on the device of the batches; nobody waits for them."""
        device = self.ids.device if isinstance(self.ids, Tensor) else torch.device(self.device)
        return send(torch.from_numpy(numbers), device)

    def windows(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of sequences, int64 [B, T] each, from their numbers on the device."""
        if isinstance(self.ids, Tensor):
            numbers = self.ids[numbers[:, None] + torch.arange(self.context_length + 1, device=numbers.device)]
        windows = numbers.long()
        return windows[:, :-1], windows[:, 1:]

    def starts(self, step: int) -> np.ndarray:
        """The first position of each window of a step: int64 [B]."""
        numbers = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        epochs, places = np.divmod(numbers, self.windows_per_epoch)
        starts = np.empty(self.batch_size, np.int64)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            starts[chosen] = self._starts_of(int(epoch), places[chosen])
        return starts

    def _starts_of(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """The first positions of the windows at some places of an epoch's order: int64 [N] -> [N]."""
        offset = stream_key(self.seed, "offset", epoch) % (self.max_offset + 1)
        key, count = stream_key(self.seed, "order", epoch), self.windows_per_epoch
        windows = _order(key, count)[places] if count <= LISTED_WINDOWS else permuted(key, places, count)
        return offset + windows * self.context_length


@lru_cache(maxsize=2)
def _order(key: int, count: int) -> np.ndarray:
    """The windows of an epoch in its order: int64 [count]."""
    return permutation(key, count)
