"""Training batches: (seed, step) alone decides which windows of the text a step reads."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpt_cli.common.rng import permutation, permuted, stream_key
from gpt_cli.config import Config
from gpt_cli.errors import UsageError
from gpt_cli.text.sft_examples import Examples, pack
from gpt_cli.text.token_files import Ids, TokensOnDisk
from gpt_cli.training.taught_targets import TARGETS_OF_LAST, TaughtTargets

# for more windows, only needed parts of an epoch's order are computed: a whole one takes a second and 32 MB
LISTED_WINDOWS = 2**22
_order = lru_cache(maxsize=2)(permutation)  # key and number of windows of an epoch -> their indices in random order


class Sequences(NamedTuple):
    """Sequences of a batch: inputs, int64 [B, T], and targets, int64 [B, T] or, if each input has N targets, [B, T, N].

    Only packed examples have `positions` [B, T], the indices of tokens in their example, and the scalar `num_targets`,
    the number of targets in the loss of the whole step. Targets outside the loss are IGNORED.
    """

    inputs: Tensor
    targets: Tensor
    positions: Tensor | None = None
    num_targets: Tensor | None = None


@dataclass(frozen=True)
class Batches:
    """Training batches of a text whose token ids, int32 [tokens], are on the device or are read from disk.

    Each epoch cuts the ids into windows of context_length from a random offset, and visits the windows in random order.
    The seed and the number of the epoch decide offset and order, so no checkpoint needs to store them.
    """

    ids: Tensor | TokensOnDisk
    context_length: int
    batch_size: int
    seed: int
    taught_targets: TaughtTargets | None = None  # if a first model teaches a second

    @property
    def max_offset(self) -> int:
        return max(0, min(self.context_length - 1, len(self.ids) - 1 - self.context_length))

    @property
    def windows_per_epoch(self) -> int:
        return max(1, (len(self.ids) - 1 - self.max_offset) // self.context_length)

    def numbers(self, step: int, chosen: slice | np.ndarray = slice(None)) -> np.ndarray:
        """Return the numbers from which `windows` builds the `chosen` sequences of a step; the first step is 0.

        Ids in memory give the starts of sequences, int64 [B]; ids on disk give the sequences, int32 [B, T + 1];
        `taught_targets` give T inputs, then N targets of each, int64 [B, T + N T]. Raises DataError or
        EnvironmentFailure if the ids on disk are damaged or cannot be read.
        """
        if self.taught_targets is not None:
            positions = self.starts(step)[:, None] + np.arange(self.context_length)
            targets = self.taught_targets(positions + 1, step)
            return np.concatenate((self.taught_targets.ids[positions], targets), axis=1)[chosen]
        starts = self.starts(step)[chosen]
        if not isinstance(self.ids, TokensOnDisk):
            return starts
        windows = self.ids.windows(starts, self.context_length + 1).astype(np.int32)
        # the disk fetches them while this step is computed
        self.ids.announce(self.starts(step + 1)[chosen], self.context_length + 1)
        return windows

    def windows(self, numbers: Tensor) -> Sequences:
        """Return inputs [B, T] and targets [B, T] or [B, T, N], int64, from the result of the method `numbers`.

        Each target is the next token; with a teacher, some targets are drawn instead (`TaughtTargets`).
        """
        if self.taught_targets is not None:
            inputs, targets = numbers[:, : self.context_length], numbers[:, self.context_length :]
            several = self.taught_targets.num_targets > 1
            return Sequences(inputs, targets.view(*inputs.shape, -1) if several else targets)
        if isinstance(self.ids, Tensor):
            numbers = self.ids[numbers[:, None] + torch.arange(self.context_length + 1, device=numbers.device)]
        windows = numbers.long()
        return Sequences(windows[:, :-1], windows[:, 1:])

    def starts(self, step: int) -> np.ndarray:
        """Return the index in the text of the first token of each window of a step: int64 [B]."""
        epochs, windows = chosen_windows(self.seed, step, self.batch_size, self.windows_per_epoch)
        offsets = [stream_key(self.seed, "offset", epoch) % (self.max_offset + 1) for epoch in epochs.tolist()]
        return np.array(offsets) + windows * self.context_length


@dataclass(frozen=True)
class PackedBatches:
    """Training batches whose windows hold several examples (questions with answers); tokens attend within an example.

    Every epoch has the same windows, in a new random order.
    """

    ids: Examples
    context_length: int
    batch_size: int
    seed: int

    @cached_property
    def rows(self) -> list[np.ndarray]:
        """The indices of the examples in each window, one array per window."""
        return pack(self.ids.lengths, self.context_length)

    @property
    def windows_per_epoch(self) -> int:
        return len(self.rows)

    def numbers(self, step: int, chosen: slice | np.ndarray = slice(None)) -> np.ndarray:
        """Return inputs, targets and positions of the `chosen` sequences of a step, side by side: int64 [B, 3 T + 1].

        The last column repeats the number of targets that enter the loss, counted over the whole step.
        """
        _, windows = chosen_windows(self.seed, step, self.batch_size, self.windows_per_epoch)
        num_targets = sum(int(self.ids.num_learned[self.rows[window]].sum()) for window in windows)
        packed = self.ids.packed([self.rows[window] for window in windows[chosen]], self.context_length)
        return np.concatenate([*packed, np.full((len(packed[0]), 1), num_targets)], axis=1)

    def windows(self, numbers: Tensor) -> Sequences:
        """Split `numbers` [B, 3 T + 1], of the method `numbers`, into inputs, targets, positions and `num_targets`."""
        inputs, targets, positions, num_targets = numbers.split([self.context_length] * 3 + [1], dim=1)
        return Sequences(inputs, targets, positions, num_targets[0, 0])


def batches_of(ids: Ids | Examples, config: Config, device: torch.device) -> Batches | PackedBatches:
    """Create batches of a text or, for Examples, packed batches; copy ids [tokens] that are in memory to the device.

    Raises UsageError if the config sets train.teacher_share for examples, or for a text whose ids are on disk.
    """
    length, train, taught = config.model.context_length, config.train, None
    if train.teacher_share is not None:
        if not isinstance(ids, np.ndarray):
            what = "questions with answers" if isinstance(ids, Examples) else "a text that stays on the disk"
            raise UsageError("train.teacher_share", f"a model cannot teach {what}", hint="‹train.teacher_share=null›")
        num_targets = TARGETS_OF_LAST if train.num_teachers > 1 else 1
        taught = TaughtTargets(ids.astype(np.int64), train.seed, num_targets=num_targets)
    if isinstance(ids, Examples):
        return PackedBatches(ids, length, train.batch_size, train.seed)
    moved = ids if isinstance(ids, TokensOnDisk) else torch.from_numpy(ids.astype(np.int32)).to(device)
    return Batches(moved, length, train.batch_size, train.seed, taught)


def chosen_windows(seed: int, step: int, batch_size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return epoch and window index of each sequence of a step, int64 [B] each; an epoch has `count` windows."""
    epochs, indices = np.divmod(np.arange(step * batch_size, (step + 1) * batch_size), count)
    windows = np.empty(batch_size, np.int64)
    for epoch in np.unique(epochs).tolist():
        key, chosen = stream_key(seed, "order", epoch), epochs == epoch
        listed = count <= LISTED_WINDOWS
        windows[chosen] = _order(key, count)[indices[chosen]] if listed else permuted(key, indices[chosen], count)
    return epochs, windows
