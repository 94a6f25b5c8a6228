"""Data parallelism: each rank has all weights, but gradient sums and optimizer state only for parameters it owns."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from gpt_cli.distributed.collectives import ALONE, Ranks
from gpt_cli.training.lora import LowRank


class Replicated:
    """The trained parameters on all ranks: every rank has all of them, and each parameter is owned by one rank.

    A rank computes some micro-batches. The owner alone keeps a parameter's summed gradient and optimizer moments,
    updates it, and sends it to all ranks (Rajbhandari et al. 2020, "ZeRO", stage 2, by whole parameters). Whole
    parameters make norms and Muon's steps bit-identical for any number of ranks. A single process owns everything.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        ranks: Ranks = ALONE,
        together: Sequence[Sequence[str]] = (),
        low_rank: LowRank | None = None,
    ):
        """Choose the rank that owns each parameter or low-rank factor, so that ranks own about equally many elements.

        All parameters of a group of names in `together` get the same owner.
        """
        self.ranks, self.low_rank = ranks, low_rank
        self.parameters = dict(parameters)
        self.device = next(iter(self.parameters.values())).device
        sizes = {name: parameter.numel() for name, parameter in self.parameters.items()}
        self.names_of_owner = owners(sizes, together, ranks.size)
        self.owned = {name: self.parameters[name] for name in self.names_of_owner[ranks.rank]}

    def micro_batches(self, num_micro_batches: int) -> range:
        """Return the indices of this rank's micro-batches, a contiguous range that `tree_sum` adds as one subtree."""
        count = num_micro_batches // self.ranks.size
        return range(self.ranks.rank * count, (self.ranks.rank + 1) * count)

    def take_gradients(self) -> list[Tensor]:
        """Return the gradients of all parameters, and set each `grad` to None."""
        taken = [gradient(parameter) for parameter in self.parameters.values()]
        for parameter in self.parameters.values():
            parameter.grad = None
        return taken

    @torch.no_grad()
    def add_gradients(self, taken: list[Tensor]) -> None:
        """Add `taken`, the result of `take_gradients`, to the current gradients of the parameters."""
        for parameter, before in zip(self.parameters.values(), taken, strict=True):
            gradient(parameter).add_(before)

    @torch.no_grad()
    def sum_gradients(self) -> None:
        """Sum each gradient over all ranks, on the rank that owns the parameter; set `grad` to None on other ranks."""
        if self.ranks.size == 1:
            return
        parts = []
        for names in self.names_of_owner:
            parts.append(self._flat([gradient(self.parameters[name]) for name in names]))
            for name in names:
                self.parameters[name].grad = None  # before the next part, for memory
        summed = self.ranks.reduce_scatter(parts)
        for parameter, total in zip(self.owned.values(), self._split(summed, list(self.owned)), strict=True):
            parameter.grad = total

    def gradient_norms(self) -> Tensor:
        """Return the L2 norm of each parameter's gradient, [number of parameters]; zero if another rank owns it."""
        # all at once, because a kernel for each takes a GPU longer than the products of a small model (note 0004)
        gradients = [gradient(parameter) for parameter in self.owned.values()]
        norms = torch._foreach_norm(gradients) if gradients else []  # type: ignore[attr-defined]
        norm_of = dict(zip(self.owned, norms, strict=True))
        zero = torch.zeros((), device=self.device)
        return torch.stack([norm_of.get(name, zero) for name in self.parameters])

    @torch.no_grad()
    def share_weights(self) -> None:
        """Send each parameter from its owner to all ranks; with LoRA, then update matrices W (`LowRank.include`)."""
        if self.ranks.size > 1:
            lengths = [sum(self.parameters[name].numel() for name in names) for names in self.names_of_owner]
            for owner, part in enumerate(self.ranks.all_gather(self._flat(list(self.owned.values())), lengths)):
                names = self.names_of_owner[owner]
                for name, new in zip(names, self._split(part, names), strict=True):
                    if owner != self.ranks.rank:
                        self.parameters[name].copy_(new)
        if self.low_rank is not None:
            self.low_rank.include()

    @torch.no_grad()
    def gather(self, names: Sequence[str], mine: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """On the first rank, return {name: tensor} for `names` in order, gathered from all ranks; on other ranks, {}.

        `mine` has this rank's tensors: one for each named parameter that it owns, of the parameter's shape.
        """
        if self.ranks.size == 1:
            return dict(mine)
        chosen = set(names)
        of_owner = [[name for name in owned if name in chosen] for owned in self.names_of_owner]
        lengths = [sum(self.parameters[name].numel() for name in owned) for owned in of_owner]
        part = self._flat([mine[name] for name in of_owner[self.ranks.rank]])
        tensors: dict[str, Tensor] = {}
        for owned, gathered in zip(of_owner, self.ranks.gather(part.cpu(), lengths) or [], strict=False):
            tensors |= zip(owned, self._split(gathered, owned), strict=True)
        return {name: tensors[name] for name in names} if tensors else {}

    def check_sum(self) -> float:
        """Return the sum of all trained parameters, a checksum that is equal on ranks with equal weights."""
        sums = torch.stack([parameter.detach().sum() for parameter in self.parameters.values()])
        return sums.cpu().double().sum().item()

    def _flat(self, tensors: Sequence[Tensor]) -> Tensor:
        """Flatten and concatenate tensors of any shapes into one tensor [N] on the device of the parameters."""
        return torch.cat([torch.empty(0, device=self.device), *(tensor.detach().reshape(-1) for tensor in tensors)])

    def _split(self, part: Tensor, names: Sequence[str]) -> list[Tensor]:
        """Split a flat tensor into views with the shapes of the named parameters."""
        shapes = [self.parameters[name].shape for name in names]
        pieces = part.split([shape.numel() for shape in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def owners(sizes: Mapping[str, int], together: Sequence[Sequence[str]], num_ranks: int) -> list[list[str]]:
    """Return each rank's parameter names, of about equal total `sizes`; names of a group in `together` share a rank."""
    grouped = {name for names in together for name in names}
    groups = [*together, *([name] for name in sizes if name not in grouped)]
    loads, chosen = [0] * num_ranks, {}
    for size, names in sorted(((sum(sizes[name] for name in names), names) for names in groups), key=lambda g: -g[0]):
        rank = loads.index(min(loads))
        loads[rank] += size
        chosen |= dict.fromkeys(names, rank)
    return [[name for name in sizes if chosen[name] == rank] for rank in range(num_ranks)]


def gradient(parameter: Tensor) -> Tensor:
    """Return `parameter.grad`, which must not be None."""
    assert parameter.grad is not None
    return parameter.grad
