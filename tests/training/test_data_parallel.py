from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gpt_cli.distributed.collectives import Ranks
from gpt_cli.training.data_parallel import Replicated


class Second(Ranks):
    """The second of two processes, whose parts stay in it."""

    rank, size = 1, 2

    def __init__(self) -> None:
        self.parts = list[Tensor]()

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        self.parts += parts
        return parts[1]

    def all_gather(self, part: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        self.parts.append(part)
        return [part.new_zeros(lengths[0]), part]


def test_a_rank_that_owns_nothing_sends_its_empty_part_from_the_device_of_the_others() -> None:
    """Another device would have it wait in another backend, for ever; `meta` stands in for a GPU."""
    parameter = nn.Parameter(torch.empty(2, 3, device="meta"))
    parameter.grad = torch.empty(2, 3, device="meta")
    ranks = Second()
    layout = Replicated({"matrix": parameter}, ranks)
    layout.sum_gradients()
    layout.share_weights()
    assert [(part.device.type, len(part)) for part in ranks.parts] == [("meta", 6), ("meta", 0), ("meta", 0)]
