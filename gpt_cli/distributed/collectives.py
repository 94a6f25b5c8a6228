"""The collectives of a training in a single process; `process_group` has those of many."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from gpt_cli.common.machine.devices import CPU


class Ranks:
    """The processes, or *ranks*, that train together, as this rank sees them; in this class there is only one.

    `process_group.ProcessGroup` has the same methods for many. All ranks must call each method, in the same order.
    """

    rank = 0
    size = 1
    local_size = 1  # ranks on this host

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files and speaks to the user."""
        return self.rank == 0

    def local_rank_zero_first(self) -> AbstractContextManager[None]:
        """Run a block on the first rank of each host before the others."""
        return contextlib.nullcontext()

    def meet(self, record: Mapping[str, str], device: torch.device = CPU) -> None:
        """Wait for all ranks, compare their records of what must be equal, and connect their devices."""

    def all_reduce_max(self, *numbers: int) -> tuple[int, ...]:
        """Return the maximum of each number over all ranks."""
        return numbers

    def broadcast(self, *numbers: float) -> tuple[float, ...]:
        """Return the numbers of the first rank."""
        return numbers

    def on_rank_zero(self, work: Callable[[], object]) -> None:
        """Run `work` on the first rank while the others wait; if `work` raises an error, all ranks raise."""
        work()

    def any_differ(self, *numbers: float) -> bool:
        """Return whether any number differs between ranks, if only in one bit."""
        return False

    def all_reduce_exact(self, values: Tensor) -> Tensor:
        """Sum values over ranks; each value is zero on all ranks but one, so the sum is exact in any order."""
        return values

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the sum over all ranks of this rank's part; each rank passes one part [N] for every rank.

        The sum is the top of the tree that `tree_sum.tree_sum` describes.
        """
        (part,) = parts
        return part

    def all_gather(self, part: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """Return the parts of all ranks, in order; each rank passes its own part, as long as `lengths` says."""
        return [part]

    def gather(self, part: Tensor, lengths: Sequence[int]) -> list[Tensor] | None:
        """Return the parts of all ranks, in order, on the first rank, and None on the others."""
        return [part]


# of a training in a single process
ALONE = Ranks()
