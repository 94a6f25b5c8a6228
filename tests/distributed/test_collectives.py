"""The tree in which micro-batches are added, how ranks add its top levels, and what the first rank raises for all."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from gpt_cli.distributed.collectives import ProcessGroup, tree_sum
from gpt_cli.distributed.failure_detector import LeftToAnother
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.training.interrupts import StopRequested
from gpt_cli.training.step import Diverged


def meeting_of(rank: int, size: int) -> Any:
    """A stand-in for the rendezvous of a rank."""
    return Mock(rank_env=Mock(rank=rank, size=size, local_size=size))


class InThread(ProcessGroup):
    """A rank that exchanges tensors with ranks of other threads."""

    def __init__(self, rank: int, size: int, boxes: dict[tuple[int, int], Queue[Tensor]]):
        super().__init__(meeting_of(rank, size))
        self.boxes = boxes

    def _exchange(self, peer: int, sent: Sequence[Tensor], received: Sequence[Tensor]) -> None:
        for tensor in sent:
            self.boxes[self.rank, peer].put(tensor.clone())
        for tensor in received:
            tensor.copy_(self.boxes[peer, self.rank].get(timeout=60))


def on_all(size: int, work: Callable[[ProcessGroup], Any]) -> list[Any]:
    """What `work` returns on each of the ranks."""
    boxes: dict[tuple[int, int], Queue[Tensor]] = {(a, b): Queue() for a in range(size) for b in range(size)}
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(work, [InThread(rank, size, boxes) for rank in range(size)]))


def test_lanes_are_added_in_halves_and_an_odd_number_in_its_order() -> None:
    """2**24 + 1 is no float32: a small number counts only where it meets another one first."""
    one, large = torch.tensor(1.0), torch.tensor(2.0**24)
    assert tree_sum([one, one, large]).item() == 2**24 + 2
    assert tree_sum([large, one, one]).item() == 2**24
    assert tree_sum([large, one, one, one]).item() == 2**24 + 2  # (large + one) + (one + one)
    assert tree_sum([large, one, one, one, one, one]).item() == 2**24 + 4  # ((large + one) + one) + 3, to even


@pytest.mark.parametrize("size", [2, 4, 8])
def test_ranks_add_as_a_single_process_adds_their_lanes(size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = [5, 0, 7, 3, 4, 6, 1, 9][:size]
    of_ranks = [[torch.randn(n, generator=generator) for n in lengths] for _ in range(size)]
    expected = [tree_sum([parts[owner] for parts in of_ranks]) for owner in range(size)]
    in_order = [sum((parts[owner] for parts in of_ranks[1:]), of_ranks[0][owner]) for owner in range(size)]
    assert size == 2 or any(not torch.equal(one, other) for one, other in zip(expected, in_order, strict=True))

    found = on_all(size, lambda group: group.reduce_scatter(of_ranks[group.rank]))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    shared = on_all(size, lambda group: group.all_gather(expected[group.rank], lengths))
    for parts in shared:
        assert all(torch.equal(one, other) for one, other in zip(parts, expected, strict=True))


def raised_by_both(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> tuple[Exception, Exception]:
    """What the first and the second rank raise where the work of the first fails."""
    told: list[str] = []

    def text_of_first(group: ProcessGroup, text: str) -> str:
        told.append(text)
        return told[0]

    def work() -> None:
        raise failure

    monkeypatch.setattr(ProcessGroup, "_text_of_first", text_of_first)
    found = []
    for rank in (0, 1):
        with pytest.raises(type(failure) if rank == 0 else Exception) as raised:
            ProcessGroup(meeting_of(rank, 2)).on_rank_zero(work)
        found.append(raised.value)
    return found[0], found[1]


@pytest.mark.parametrize(
    "failure",
    [
        EnvironmentFailure("f", "the disk is full", hint="remove files"),
        StopRequested(15),
        Diverged(3, "the attention weights of inspect.prompt are not finite"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_all_ranks_raise_what_the_first_does(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = raised_by_both(failure, monkeypatch)
    assert first is failure is not second
    assert (type(second), vars(second)) == (type(failure), vars(failure))


@pytest.mark.parametrize(("failure", "code"), [(MemoryError(), 5), (OSError(13, "no", "f"), 5), (KeyError("x"), 1)])
def test_what_only_the_first_rank_can_tell_is_left_to_it(
    failure: Exception, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = raised_by_both(failure, monkeypatch)
    assert first is failure
    assert isinstance(second, LeftToAnother)
    assert second.exit_code == code
