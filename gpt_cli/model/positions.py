"""How a model learns the order of its tokens: positions added to embeddings, or rotated into queries and keys."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SinusoidalPositions(nn.Module):
    """A fixed table of sines and cosines: positions [T] -> [T, D]. Vaswani et al. 2017, section 3.5."""

    table: Tensor

    def __init__(self, context_length: int, d_model: int):
        super().__init__()
        # on the CPU even when the model is built on the meta device, so that the table has values
        angles = _angles(torch.arange(context_length, device="cpu"), d_model)
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :d_model]
        self.register_buffer("table", table.float(), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        return self.table[positions]


class RotaryPositions(nn.Module):
    """Angles by which queries and keys of some size turn: T -> cosines, sines [2, T, size]. Su et al. 2021, eq. 34."""

    table: Tensor

    def __init__(self, context_length: int, size: int):
        super().__init__()
        self.size = size
        # on the CPU even when the model is built on the meta device, so that the table has values
        self.register_buffer("table", self.at(torch.arange(context_length, device="cpu")), persistent=False)

    def forward(self, num_tokens: int) -> Tensor:
        return self.table[:, :num_tokens]

    def at(self, positions: Tensor) -> Tensor:
        """Cosines and sines of any positions, also beyond the table: [...] -> float32 [2, ..., size]."""
        angles = _angles(positions, self.size)
        angles = torch.cat([angles, angles], dim=-1)
        return torch.stack([angles.cos(), angles.sin()]).float()


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn each pair (i, i + K/2) of queries or keys by its angle: [..., T, K] with [2, T, K] -> [..., T, K]."""
    cosines, sines = rotation
    first, second = x.chunk(2, dim=-1)
    return (x * cosines + torch.cat([-second, first], dim=-1) * sines).to(x.dtype)


def _angles(positions: Tensor, size: int) -> Tensor:
    """Position times frequency, 10000^(-2i/size): [...] -> float64 [..., ceil(size / 2)]."""
    frequencies = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64, device=positions.device) / size)
    return positions[..., None].double() * frequencies
