"""Sums, broadcasts and other collective operations between the processes of a training, by torch.distributed."""

from __future__ import annotations

import contextlib
import json
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from gpt_cli.common.machine.failures import exit_code_of
from gpt_cli.distributed.environment import process_name
from gpt_cli.distributed.failure_detector import LeftToAnother, LostProcess
from gpt_cli.errors import GptError

if TYPE_CHECKING:
    from gpt_cli.distributed.rendezvous import Rendezvous


def tree_sum(terms: Sequence[Tensor]) -> Tensor:
    """Return the sum of `terms` in a fixed tree: an even number of terms is added by halves, an odd one left to right.

    The sum of eight terms is ((a + b) + (c + d)) + ((e + f) + (g + h)). If W ranks (a power of two that divides the
    number of terms) each add one branch of the tree, the total has the same bits as in a single process.
    """
    if len(terms) % 2:
        return reduce(torch.add, terms)
    half = len(terms) // 2
    return tree_sum(terms[:half]) + tree_sum(terms[half:])


class Ranks:
    """The processes (ranks) that train together, as seen by this rank; in this base class there is only one rank.

    `ProcessGroup` has the same methods for several ranks, which must all call them in the same order.
    """

    rank = 0
    size = 1
    local_size = 1  # ranks on this host

    @property
    def is_first(self) -> bool:
        """Whether this process is rank 0, which writes files and prints messages to the user."""
        return self.rank == 0

    def local_rank_zero_first(self) -> AbstractContextManager[None]:
        """Return a context manager; on each machine, the first rank runs the `with` block before the other ranks do."""
        return contextlib.nullcontext()

    def meet(self, record: Mapping[str, str], device: torch.device) -> None:
        """Wait for all ranks and connect their devices; raise a GptError if the ranks' records (config, ...) differ."""

    def all_reduce_max(self, *numbers: int) -> tuple[int, ...]:
        """Return the maximum of each number over all ranks."""
        return numbers

    def broadcast(self, *numbers: float) -> tuple[float, ...]:
        """Return, on every rank, the numbers that rank 0 passes."""
        return numbers

    def on_rank_zero(self, work: Callable[[], object]) -> None:
        """Run `work` on rank 0 while all other ranks wait; if `work` raises an error, all ranks raise an error."""
        work()

    def any_differ(self, *numbers: float) -> bool:
        """Return whether any number differs between ranks, even in a single bit."""
        return False

    def all_reduce_exact(self, values: Tensor) -> Tensor:
        """Return the elementwise sum over ranks, exact where only one rank's value is not 0; may overwrite `values`."""
        return values

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the sum of the parts that all ranks pass for this rank; `parts` has one tensor [N] for every rank.

        The ranks' parts are added in the order of `tree_sum`: for 4 ranks, (a + b) + (c + d).
        """
        (part,) = parts
        return part

    def all_gather(self, part: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """Return the tensors `part` [N] of all ranks, in rank order; `lengths` has the length N of each rank's part."""
        return [part]

    def gather(self, part: Tensor, lengths: Sequence[int]) -> list[Tensor] | None:
        """On rank 0, return all ranks' tensors `part` [N] in rank order, else None; `lengths` has N for each rank."""
        return [part]


# of a training in a single process
ALONE = Ranks()


class ProcessGroup(Ranks):
    """The collective operations of `Ranks` for W processes, W a power of two.

    Numbers are sent between CPUs, so that no rank waits for a GPU; tensors are sent between their devices, if torch
    can. Methods raise EnvironmentFailure if another rank is gone.
    """

    def __init__(self, meeting: Rendezvous):
        of_rank = meeting.rank_env
        self.rank, self.size, self.local_size = of_rank.rank, of_rank.size, of_rank.local_size
        self.meet, self.local_rank_zero_first = meeting.meet, meeting.local_rank_zero_first

    def all_reduce_max(self, *numbers: int) -> tuple[int, ...]:
        agreed = torch.tensor(numbers, dtype=torch.int64)
        with self._alive():
            dist.all_reduce(agreed, dist.ReduceOp.MAX)
        return tuple(agreed.tolist())

    def broadcast(self, *numbers: float) -> tuple[float, ...]:
        agreed = torch.tensor(numbers, dtype=torch.float64)
        with self._alive():
            dist.broadcast(agreed, src=0)
        return tuple(agreed.tolist())

    def on_rank_zero(self, work: Callable[[], object]) -> None:
        raised: Exception | None = None
        if self.is_first:
            try:
                work()
            except Exception as error:
                raised = error
        message = self._text_of_first("" if raised is None else _described(raised))
        if raised is not None:
            raise raised
        if message:
            raise _rebuilt(message)

    def any_differ(self, *numbers: float) -> bool:
        bits = struct.unpack(f"{len(numbers)}q", struct.pack(f"{len(numbers)}d", *numbers))
        largest = self.all_reduce_max(*bits, *(~bit for bit in bits))
        return any(~low != high for high, low in zip(largest[: len(bits)], largest[len(bits) :], strict=True))

    def all_reduce_exact(self, values: Tensor) -> Tensor:
        carried = values if _is_joined(values) else values.cpu()
        with self._alive():
            dist.all_reduce(carried)
        return carried.to(values.device)

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        mine = dict(enumerate(parts))
        for peer, bit in self._peers():
            # the peer takes the parts of owners whose rank has the same bit here as the peer's rank
            retained = [owner for owner in mine if owner & bit == self.rank & bit]
            sent = [mine.pop(owner) for owner in list(mine) if owner & bit != self.rank & bit]
            received = [torch.empty_like(mine[owner]) for owner in retained]
            self._exchange(peer, sent, received)
            for owner, other in zip(retained, received, strict=True):
                mine[owner] = other.add_(mine[owner])  # a sum of two is the same in both orders
        return mine[self.rank]

    def all_gather(self, part: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        gathered = {self.rank: part}
        for peer, bit in reversed(self._peers()):
            owners = sorted(gathered)
            received = [part.new_empty(lengths[owner ^ bit]) for owner in owners]
            self._exchange(peer, [gathered[owner] for owner in owners], received)
            gathered |= {owner ^ bit: other for owner, other in zip(owners, received, strict=True)}
        return [gathered[owner] for owner in range(self.size)]

    def gather(self, part: Tensor, lengths: Sequence[int]) -> list[Tensor] | None:
        if not self.is_first:
            self._transfer([dist.P2POp(dist.isend, part.contiguous(), 0)] if part.numel() else [])
            return None
        parts = [part, *(part.new_empty(length) for length in lengths[1:])]
        self._transfer([dist.P2POp(dist.irecv, p, owner) for owner, p in enumerate(parts) if owner and p.numel()])
        return parts

    def _peers(self) -> list[tuple[int, int]]:
        """Return (peer rank, the bit that differs from this rank's) for each level of the sum tree, lowest first."""
        bits = [1 << level for level in range(self.size.bit_length() - 1)]
        return [(self.rank ^ bit, bit) for bit in bits]

    def _exchange(self, peer: int, sent: Sequence[Tensor], received: Sequence[Tensor]) -> None:
        # no empty messages, whose effect on the receiver is undefined
        operations = [dist.P2POp(dist.isend, tensor, peer) for tensor in sent if tensor.numel()]
        self._transfer(operations + [dist.P2POp(dist.irecv, tensor, peer) for tensor in received if tensor.numel()])

    def _transfer(self, operations: list[dist.P2POp]) -> None:
        carried = [o if _is_joined(o.tensor) else dist.P2POp(o.op, o.tensor.cpu(), o.peer) for o in operations]
        with self._alive():
            for request in dist.batch_isend_irecv(carried) if carried else []:
                request.wait()
        for operation, other in zip(operations, carried, strict=True):
            if operation is not other and operation.op is dist.irecv:
                operation.tensor.copy_(other.tensor)

    def _text_of_first(self, text: str) -> str:
        """Return, on every rank, the text that rank 0 passes."""
        content = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8) if text else torch.empty(0).byte()
        (length,) = self.all_reduce_max(len(content) if self.is_first else 0)
        if not length:
            return ""
        content = content if self.is_first else torch.empty(length, dtype=torch.uint8)
        with self._alive():
            dist.broadcast(content, src=0)
        return bytes(content.tolist()).decode()

    @contextlib.contextmanager
    def _alive(self) -> Iterator[None]:
        """Run a block; raise LostProcess instead of the RuntimeError of torch.distributed if another rank has ended."""
        try:
            yield
        except RuntimeError as error:
            name = process_name(self.rank, self.size)
            raise LostProcess(name, "it lost contact with another process of this training") from error


def _is_joined(tensor: Tensor) -> bool:
    """Return whether torch can send a tensor from its device; if not, callers send a copy in main memory."""
    return f"{tensor.device.type}:" in dist.get_backend_config()


def _described(error: Exception) -> str:
    """Return an exception as JSON: its class, arguments and hint; LeftToAnother for a class that is not of gpt_cli."""
    if not type(error).__module__.startswith("gpt_cli."):
        error = LeftToAnother(exit_code_of(error))  # rank 0 reports why
    kind = type(error)
    return json.dumps([kind.__module__, kind.__qualname__, error.args, getattr(error, "hint", None)])


def _rebuilt(described: str) -> Exception:
    """Return the exception that `_described` has encoded."""
    module, name, arguments, hint = json.loads(described)
    error: Exception = getattr(sys.modules[module], name)(*arguments)
    if isinstance(error, GptError):
        error.hint = hint
    return error
