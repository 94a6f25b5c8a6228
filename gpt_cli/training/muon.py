"""The Muon optimizer (Jordan et al. 2024): orthogonalised momentum, for many matrices of one shape at once.

Muon cuts feed-forward matrices into pieces that are about square. Pieces of d_model x d_model are in a batch with the
matrices `projection_layer` of attention; Wq, Wk and Wv of each head are in another batch, uncut.
"""

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
# numbers from which a stack is full: fewer would slow its products down, more would leave ranks without work
STACK_NUMBERS = 2**22
# of a polynomial that moves singular values from (0, 1] near 1 (Jordan 2024)
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


class Muon:
    """The Muon optimizer: orthogonalised Nesterov momentum, with decoupled weight decay."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], weight_decay: float, dtype: torch.dtype):
        """Prepare to update this rank's matrices, which must be whole groups of `stacks`, with products in `dtype`."""
        groups = stacks(parameters)
        self.parameters = {name: parameters[name] for names in groups for name in names}
        self.weight_decay = weight_decay
        self.dtype = dtype  # of the products
        # (parameter, piece) of each stack and shape
        self.batches: defaultdict[tuple[int, torch.Size], list[tuple[str, int]]] = defaultdict(list)
        for stack, names in enumerate(groups):
            for name in names:
                for number, piece in enumerate(_cut(name, self.parameters[name])):
                    self.batches[stack, piece.shape].append((name, number))
        # [pieces, rows, columns] of each
        pieces = self._pieces({name: parameter.detach() for name, parameter in self.parameters.items()})
        self.momentum = {key: torch.zeros_like(stacked) for key, stacked in pieces.items()}

    @torch.no_grad()
    def step(self, learning_rate: float | Tensor) -> None:
        """Update the parameters by their gradients, which must not be None; the rate may be a float32 scalar tensor."""
        gradients = {name: parameter.grad for name, parameter in self.parameters.items() if parameter.grad is not None}
        cut = {name: _cut(name, parameter) for name, parameter in self.parameters.items()}
        decay = 1 - learning_rate * self.weight_decay
        for key, stacked in self._pieces(gradients).items():
            momentum = self.momentum[key]
            momentum.lerp_(stacked, 1 - MOMENTUM)
            steps = orthogonalise(stacked.lerp_(momentum, MOMENTUM), self.dtype)
            pieces = [cut[name][number] for name, number in self.batches[key]]
            torch._foreach_mul_(pieces, decay)  # type: ignore[attr-defined]
            if isinstance(learning_rate, Tensor):
                rates = [learning_rate] * len(pieces)
                torch._foreach_addcmul_(pieces, steps.unbind(), rates, value=-1)  # type: ignore[attr-defined]
            else:
                torch._foreach_add_(pieces, steps.unbind(), alpha=-learning_rate)  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the momentum of each parameter, by parameter name."""
        joined = {name: torch.empty_like(p, requires_grad=False) for name, p in self.parameters.items()}
        for key, pieces in self.batches.items():
            for (name, number), piece in zip(pieces, self.momentum[key], strict=True):
                _cut(name, joined[name])[number].copy_(piece)
        return joined

    def load_state_dict(self, stored: Mapping[str, Tensor]) -> None:
        """Restore the momentum of each parameter, stored as `<parameter>.momentum`."""
        for key, stacked in self._pieces({name: stored[f"{name}.momentum"] for name in self.parameters}).items():
            self.momentum[key].copy_(stacked)

    def _pieces(self, matrices: Mapping[str, Tensor]) -> dict[tuple[int, torch.Size], Tensor]:
        """Cut matrices; return {(index of the group in `stacks`, piece shape): its pieces, [number, rows, columns]}."""
        cut = {name: _cut(name, matrix) for name, matrix in matrices.items()}
        return {key: torch.stack([cut[name][number] for name, number in parts]) for key, parts in self.batches.items()}


def stacks(parameters: Mapping[str, Tensor]) -> list[list[str]]:
    """Return groups of matrix names; Muon orthogonalises each group in one batch, about STACK_NUMBERS elements at most.

    Muon cuts feed-forward matrices into pieces that are about square; matrices in a group have pieces of equal shapes.
    One rank must own a whole group, because rounding may depend on the batch.
    """
    by_shape: defaultdict[tuple[torch.Size, ...], list[str]] = defaultdict(list)
    for name, parameter in parameters.items():
        by_shape[tuple(sorted({piece.shape for piece in _cut(name, parameter)}))].append(name)
    groups: list[list[str]] = []
    for names in by_shape.values():
        size = STACK_NUMBERS
        for name in names:
            if size >= STACK_NUMBERS:
                groups.append([])
                size = 0
            groups[-1].append(name)
            size += parameters[name].numel()
    return groups


def orthogonalise(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """Approximate the nearest semi-orthogonal matrix to each of `matrices` [N, rows, columns], rows <= columns.

    Uses Newton-Schulz iterations of fifth order, with products in `dtype`. Singular values end between 0.6 and 1.3, or
    lower if they began below about a hundredth of the largest.
    """
    assert matrices.shape[1] <= matrices.shape[2]
    a, b, c = _COEFFICIENTS
    x = (matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-30)).to(dtype)
    for _ in range(_ITERATIONS):
        squared = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(squared, squared, squared, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)


def _cut(name: str, matrix: Tensor) -> tuple[Tensor, ...]:
    """Return the pieces of a matrix that Muon orthogonalises one by one: views with no more rows than columns."""
    shorter, longer = sorted(matrix.shape)
    wide = matrix if matrix.shape[0] == shorter else matrix.T
    return wide.tensor_split(longer // shorter, dim=1) if "feed_forward" in name else (wide,)
