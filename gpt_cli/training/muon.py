"""Muon: steps of momentum made orthogonal, for all matrices of one shape at once. Jordan et al. 2024.

A matrix of the feed-forward part that can be is cut into squares as wide as the model, so that all of them, and
projection_layer, share one batch; the matrices of heads stay whole, and are another.
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
        self.batches: defaultdict[torch.Size, list[str]] = defaultdict(list)
        for name, parameter in self.parameters.items():
            self.batches[_cut(name, parameter)[0].shape].append(name)
        # [pieces, rows, columns] of each shape
        self.momentum = {shape: torch.zeros_like(self._pieces(shape)) for shape in self.batches}

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Change the parameters by their gradients, which all must be there."""
        for shape, names in self.batches.items():
            momentum = self.momentum[shape]
            gradients = self._pieces(shape, gradients=True)
            momentum.lerp_(gradients, 1 - MOMENTUM)
            steps = iter(orthogonalise(gradients.lerp_(momentum, MOMENTUM), self.dtype))
            for name in names:
                for piece, step in zip(_cut(name, self.parameters[name]), steps, strict=False):
                    piece.mul_(1 - learning_rate * self.weight_decay).add_(step, alpha=-learning_rate)

    def moments(self) -> dict[str, Tensor]:
        """The momentum of each parameter: `<parameter>.momentum`."""
        found = {}
        for shape, names in self.batches.items():
            pieces = iter(self.momentum[shape])
            for name in names:
                parameter = self.parameters[name]
                joined = torch.empty_like(parameter, requires_grad=False)
                for place, piece in zip(_cut(name, joined), pieces, strict=False):
                    place.copy_(piece)
                found[f"{name}.momentum"] = joined
        return found

    def restore(self, stored: Mapping[str, Tensor]) -> None:
        """Put back what `moments` gave."""
        for shape, names in self.batches.items():
            pieces = [piece for name in names for piece in _cut(name, stored[f"{name}.momentum"])]
            self.momentum[shape].copy_(torch.stack(pieces))

    def _pieces(self, shape: torch.Size, *, gradients: bool = False) -> Tensor:
        """All pieces of a shape, of the parameters or of their gradients: [pieces, rows, columns]."""
        found: list[Tensor] = []
        for name in self.batches[shape]:
            matrix = self.parameters[name].grad if gradients else self.parameters[name].detach()
            assert matrix is not None
            found += _cut(name, matrix)
        return torch.stack(found)


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
    if "feed_forward" in name and longer % shorter == 0:
        return wide.split(shorter, dim=1)
    return (wide,)
