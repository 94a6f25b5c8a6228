"""Muon: steps of momentum made orthogonal, for all matrices of one shape at once. Jordan et al. 2024.

A matrix of the feed-forward part is cut into squares, so that all of them, and projection_layer, share one batch (into
pieces a little longer where its width is no multiple of d_model); the matrices of heads stay whole, and are another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
# of a polynomial that moves singular values from (0, 1] near 1 (Jordan 2024)
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


class Muon:
    """Nesterov momentum, made orthogonal, with decoupled weight decay."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], weight_decay: float, dtype: torch.dtype):
        self.parameters = dict(parameters)
        self.weight_decay = weight_decay
        self.dtype = dtype  # of the products
        self.batches: defaultdict[torch.Size, list[tuple[str, int]]] = defaultdict(list)
        for name, parameter in self.parameters.items():
            for number, piece in enumerate(_cut(name, parameter)):
                self.batches[piece.shape].append((name, number))
        # [pieces, rows, columns] of each shape
        pieces = self._pieces({name: parameter.detach() for name, parameter in self.parameters.items()})
        self.momentum = {shape: torch.zeros_like(stacked) for shape, stacked in pieces.items()}

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Change the parameters by their gradients, none of which may be None."""
        gradients = {name: parameter.grad for name, parameter in self.parameters.items() if parameter.grad is not None}
        cut = {name: _cut(name, parameter) for name, parameter in self.parameters.items()}
        for shape, stacked in self._pieces(gradients).items():
            momentum = self.momentum[shape]
            momentum.lerp_(stacked, 1 - MOMENTUM)
            steps = orthogonalise(stacked.lerp_(momentum, MOMENTUM), self.dtype)
            for (name, number), step in zip(self.batches[shape], steps, strict=True):
                cut[name][number].mul_(1 - learning_rate * self.weight_decay).add_(step, alpha=-learning_rate)

    def moments(self) -> dict[str, Tensor]:
        """The momentum of each parameter: `<parameter>.momentum`."""
        joined = {name: torch.empty_like(p, requires_grad=False) for name, p in self.parameters.items()}
        for shape, pieces in self.batches.items():
            for (name, number), piece in zip(pieces, self.momentum[shape], strict=True):
                _cut(name, joined[name])[number].copy_(piece)
        return {f"{name}.momentum": found for name, found in joined.items()}

    def restore(self, stored: Mapping[str, Tensor]) -> None:
        """Put back what `moments` returned."""
        pieces = self._pieces({name: stored[f"{name}.momentum"] for name in self.parameters})
        for shape, stacked in pieces.items():
            self.momentum[shape].copy_(stacked)

    def _pieces(self, matrices: Mapping[str, Tensor]) -> dict[torch.Size, Tensor]:
        """The pieces of all matrices, stacked by shape: [pieces, rows, columns] each."""
        cut = {name: _cut(name, matrix) for name, matrix in matrices.items()}
        return {
            shape: torch.stack([cut[name][number] for name, number in pieces]) for shape, pieces in self.batches.items()
        }


def orthogonalise(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest orthogonal matrix to each of [N, rows, columns], rows <= columns, nearly.

    Newton-Schulz iterations of fifth order, with products in `dtype`: singular values end between 0.6 and 1.3, those
    below about a hundredth of the largest lower.
    """
    assert matrices.shape[1] <= matrices.shape[2]
    a, b, c = _COEFFICIENTS
    x = (matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-30)).to(dtype)
    for _ in range(_ITERATIONS):
        squared = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(squared, squared, squared, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)


def _cut(name: str, matrix: Tensor) -> tuple[Tensor, ...]:
    """The pieces of a matrix that are made orthogonal, as views, each with no more rows than columns."""
    shorter, longer = sorted(matrix.shape)
    wide = matrix if matrix.shape[0] == shorter else matrix.T
    return wide.tensor_split(longer // shorter, dim=1) if "feed_forward" in name else (wide,)
