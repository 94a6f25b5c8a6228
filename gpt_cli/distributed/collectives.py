"""The collective operations of a training in a single process; `process_group.py` has those of several."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from gpt_cli.common.machine.devices import CPU


class Ranks:
    """The processes (ranks) that train together, as seen by this rank; in this base class there is only one rank.

    `process_group.ProcessGroup` has the same methods for several ranks, which must all call them in the same order.
    """

    rank = 0
    size = 1
    local_size = 1  # ranks on this host

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes files and prints messages to the user."""
        return self.rank == 0

    def local_rank_zero_first(self) -> AbstractContextManager[None]:
        """Return a context manager that runs its block on the first rank of each host before the other ranks."""
        return contextlib.nullcontext()

    def meet(self, record: Mapping[str, str], device: torch.device = CPU) -> None:
        """Wait for all ranks, check that their records (config, versions, ...) are equal, and connect their devices."""

    def all_reduce_max(self, *numbers: int) -> tuple[int, ...]:
        """Return the maximum of each number over all ranks."""
        return numbers

    def broadcast(self, *numbers: float) -> tuple[float, ...]:
        """Return, on every rank, the numbers that rank 0 passes."""
        return numbers

    def on_rank_zero(self, work: Callable[[], object]) -> None:
        """Run `work` on rank 0 while all other ranks wait; if `work` raises an error, all ranks raise one."""
        work()

    def any_differ(self, *numbers: float) -> bool:
        """Return whether any number differs between ranks, even in a single bit."""
        return False

    def all_reduce_exact(self, values: Tensor) -> Tensor:
        """Return the sum of `values` over ranks; each is nonzero on only one rank, so the sum is exact in any order."""
        return values

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the sum over all ranks of the part for this rank; each rank passes one part [N] for every rank.

        The order of the sum is that of the top levels of the tree in `tree_sum.tree_sum`.
        """
        (part,) = parts
        return part

    def all_gather(self, part: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """Return the parts of all ranks, by rank; each rank passes its own part, and `lengths` gives all lengths."""
        return [part]

    def gather(self, part: Tensor, lengths: Sequence[int]) -> list[Tensor] | None:
        """Return the parts of all ranks, by rank, on rank 0; return None on all other ranks."""
        return [part]


# of a training in a single process
ALONE = Ranks()
