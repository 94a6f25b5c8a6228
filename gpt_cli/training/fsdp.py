"""Shard the weights of a model between ranks, none of which holds all: importing this takes seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from gpt_cli.distributed.collectives import Ranks
from gpt_cli.model import GPT
from gpt_cli.training.data_parallel import Replicated, flat, gradient


class Sharded(Replicated):
    """Each rank keeps some rows of every parameter, its shard, and collects a block's others while it computes with it.

    torch's `fully_shard` does that (Zhao et al. 2023, "PyTorch FSDP"), with sums of gradients in the tree of
    `tree_sum.tree_sum`. Owners keep their parameters whole as well and change them as in Replicated, so that the
    result is the same to the last bit. Of P parameters, each of W ranks holds 24 P / W bytes: the weights and their
    gradients, both in shards and with their owners, and two moments; 4 P / W more for each level of the tree that its
    micro-batches make. Beside these it has the embeddings, output layer and one or two blocks whole while it computes,
    and what autograd keeps for the backward pass: activations, joined projections of heads, and casts of weights in
    bfloat16, 2 P bytes. The model is whole in main memory before it is sharded, and once more when the best weights
    are evaluated.
    """

    def __init__(self, model: GPT, ranks: Ranks, together: Sequence[Sequence[str]], device: torch.device):
        super().__init__(model, ranks, together)
        self.device = device
        self._first_sum = super().check_sum()
        of_ranks = {name: _shard_sizes(parameter.shape, ranks.size) for name, parameter in self.parameters.items()}
        self.sizes = of_ranks  # numbers in the shard of each rank
        # copies on their owners; elsewhere a parameter has only a shape
        for name, parameter in self.parameters.items():
            whole = torch.empty_like(parameter, device="meta")
            if name in self.owned:
                whole = parameter.detach().to(device, copy=True)
            self.parameters[name] = nn.Parameter(whole)
        self.owned = {name: self.parameters[name] for name in self.owned}
        self._shard_model(model, device)
        self.shards = {name: cast("DTensor", shard) for name, shard in model.named_parameters()}

    def _shard_model(self, model: GPT, device: torch.device) -> None:
        mesh = init_device_mesh(device.type, (self.ranks.size,))
        parts = [*cast("Sequence[nn.Module]", model.blocks), model]
        for part in parts:
            fully_shard(part, mesh=mesh)
        for part in cast("list[Any]", parts):
            part.set_custom_all_gather(_Join(self.ranks))
            part.set_custom_reduce_scatter(_TreeSum(self.ranks))
            # a micro-batch's loss is divided already
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)

    def micro_batches(self, num_micro_batches: int) -> range:
        """Return this rank's micro-batches: in each round, ranks compute neighbours, a branch of the tree."""
        return range(self.ranks.rank, num_micro_batches, self.ranks.size)

    def take_gradients(self) -> list[Tensor]:
        """Return the sums of all ranks' gradients in this rank's shards, and remove them there."""
        taken = [_local(gradient(shard)) for shard in self.shards.values()]
        self._forget_shards()
        return taken

    @torch.no_grad()
    def add_gradients(self, taken: list[Tensor]) -> None:
        for shard, before in zip(self.shards.values(), taken, strict=True):
            _local(gradient(shard)).add_(before)

    @torch.no_grad()
    def sum_gradients(self) -> None:
        """Move the summed gradients to the owners of the parameters."""
        parts = [flat([_local(gradient(self.shards[name])) for name in names]) for names in self.names_of_owner]
        self._forget_shards()
        sizes = [[self.sizes[name][rank] for name in self.owned] for rank in range(self.ranks.size)]
        swapped = self.ranks.all_to_all(parts, [sum(of_rank) for of_rank in sizes])
        pieces = [part.split(of_rank) for part, of_rank in zip(swapped, sizes, strict=True)]
        for parameter, *of_ranks in zip(self.owned.values(), *pieces, strict=True):
            parameter.grad = torch.cat(of_ranks).view(parameter.shape)

    def forget_gradients(self) -> None:
        super().forget_gradients()
        self._forget_shards()

    @torch.no_grad()
    def share_weights(self) -> None:
        """Copy the owners' parameters into the shards of all ranks."""
        cut = [parameter.view(-1).split(self.sizes[name]) for name, parameter in self.owned.items()]
        parts = [flat([pieces[rank] for pieces in cut]) for rank in range(self.ranks.size)]
        sizes = [[self.sizes[name][self.ranks.rank] for name in names] for names in self.names_of_owner]
        swapped = self.ranks.all_to_all(parts, [sum(of_owner) for of_owner in sizes])
        for names, part, of_owner in zip(self.names_of_owner, swapped, sizes, strict=True):
            for name, piece in zip(names, part.split(of_owner), strict=True):
                self._set_shard(name, piece)
        self._collect_anew()

    def weights(self) -> Mapping[str, Tensor]:
        """Return all weights in main memory of the first rank; {} on the others."""
        return self.gather(list(self.parameters), self.owned)

    def check_sum(self) -> float:
        """Return the check sum of the weights at the start; later, no two ranks have the same weights."""
        return self._first_sum

    @torch.no_grad()
    def model_of(self, other: GPT) -> GPT:
        """Return this rank's model with the weights of another; owners keep their parameters."""
        for name, parameter in other.named_parameters():
            self._set_shard(name, parameter.reshape(-1).split(self.sizes[name])[self.ranks.rank])
        self._collect_anew()
        return self.model

    def whole_model(self) -> GPT | None:
        """Return the model in main memory of the first rank, where a GPU may have too little; None on the others."""
        weights = self.weights()
        if not weights:
            return None
        with torch.device("meta"):
            whole = GPT(self.model.config, self.model.vocab_size)
        return whole.take_weights(weights)

    def _set_shard(self, name: str, numbers: Tensor) -> None:
        local = _local(self.shards[name])
        local.copy_(numbers.view(local.shape))

    def _collect_anew(self) -> None:
        """Free whole parameters that an evaluation has left behind."""
        cast("Any", self.model).reshard()

    def _forget_shards(self) -> None:
        for shard in self.shards.values():
            shard.grad = None


class _Exchange:
    """A collective as `fully_shard` calls it: see torch.distributed.fsdp's class Comm.

    Through `ranks`, so that the end of another rank is an error for the user.
    """

    def __init__(self, ranks: Ranks):
        self.ranks = ranks

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _Join(_Exchange):
    """The weights of a block, from all ranks."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> None:
        """[N] on each rank: all of them side by side, in `output_tensor` [W x N]."""
        self.ranks.all_gather_into(input_tensor, output_tensor)


class _TreeSum(_Exchange):
    """The sum of a block's gradients over all ranks."""

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: object,
        async_op: bool = False,
    ) -> None:
        """[W x N] on each rank, W parts: the sum of this rank's part over all ranks, in `output_tensor` [N]."""
        output_tensor.copy_(self.ranks.reduce_scatter(input_tensor.chunk(self.ranks.size)))


def _shard_sizes(shape: torch.Size, num_ranks: int) -> list[int]:
    """Return the numbers of a parameter that each rank holds: equal rows, of which the last ranks may have fewer."""
    rows = -(-shape[0] // num_ranks)
    width = shape[1:].numel()
    return [width * min(rows, max(0, shape[0] - rank * rows)) for rank in range(num_ranks)]


def _local(shard: Tensor) -> Tensor:
    return cast("DTensor", shard).to_local()
