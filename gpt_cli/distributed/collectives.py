"""The collectives of a training in a single process; `process_group` has those of many."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from gpt_cli.common.machine.devices import CPU


class Ranks:
    """All processes that train together, one of which is this one, its *rank*; this class is a single process.

    `process_group.ProcessGroup` is the same for many. All ranks call each method, in the same order.
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
        """Wait for all ranks, compare their records, which name what must be equal, and join their devices."""

    def all_reduce_max(self, *numbers: int) -> tuple[int, ...]:
        """Return the largest of each number over all ranks."""
        return numbers

    def broadcast(self, *numbers: float) -> tuple[float, ...]:
        """Return the numbers of the first rank."""
        return numbers

    def on_rank_zero(self, work: Callable[[], object]) -> None:
        """Let the first rank work while the others wait; all raise what the first rank raises."""
        work()

    def any_differ(self, *numbers: float) -> bool:
        """Return whether the numbers are not the same, bit for bit, on all ranks."""
        return False

    def all_reduce_exact(self, values: Tensor) -> Tensor:
        """Sum values of which each is zero on all ranks but one: the sum is exact, whatever its order."""
        return values

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        """Sum this rank's part over all ranks, each of which has one part [N] for each rank.

        The sum is the top of the tree that `tree_sum.tree_sum` describes.
        """
        (part,) = parts
        return part

    def all_gather(self, part: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """Return the parts [length] of all ranks, each of which has one."""
        return [part]

    def gather(self, part: Tensor, lengths: Sequence[int]) -> list[Tensor] | None:
        """Return the parts [length] of all ranks on the first rank; None elsewhere."""
        return [part]


# of a training in a single process
ALONE = Ranks()
