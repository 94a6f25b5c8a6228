"""Position encodings: sinusoidal, which are added to embeddings, and rotary (RoPE), which rotate queries and keys."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

_MOST_ROWS = 8192  # of a table of angles; one of 131,072 would take a second and 700 MB at each start


class SinusoidalPositions(nn.Module):
    """Sinusoidal position embeddings, a fixed table: positions [T] -> [T, D]. Vaswani et al. 2017, section 3.5."""

    table: Tensor

    def __init__(self, context_length: int, d_model: int):
        super().__init__()
        # on the CPU even when the model is built on the meta device, so that the table has values
        angles = torch.arange(context_length, device="cpu")[:, None].double() * _frequencies(d_model)
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :d_model]
        self.register_buffer("table", table.float(), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        return self.table[positions]


class RopeScaling(NamedTuple):
    """Llama 3's scaling of RoPE's frequencies for longer texts: low frequencies become lower, high ones stay.

    Frequencies of fewer than `low` turns in `original_length` tokens are divided by `factor`; those of more than `high`
    turns stay; those between are interpolated.
    """

    factor: float
    original_length: int
    low: float
    high: float

    def slowed(self, frequencies: Tensor) -> Tensor:
        """Scale RoPE frequencies, in radians per token, as the code of Llama 3.1 does: [...] -> [...]."""
        turns = self.original_length * frequencies / (2 * math.pi)
        unchanged = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return frequencies * (unchanged + (1 - unchanged) / self.factor)


class RotaryPositions(nn.Module):
    """RoPE (Su et al. 2021, eq. 34): T tokens -> cosines and sines [2, T, size]; a head rotates `size` numbers."""

    table: Tensor

    def __init__(self, context_length: int, size: int, base: float = 10000.0, scaling: RopeScaling | None = None):
        super().__init__()
        self.size, self.base, self.scaling = size, base, scaling
        # on the CPU even when the model is built on the meta device, so that the table has values
        rows = torch.arange(min(context_length, _MOST_ROWS), device="cpu")
        self.register_buffer("table", self.at(rows), persistent=False)

    def forward(self, num_tokens: int) -> Tensor:
        if num_tokens > self.table.shape[1]:
            with torch.inference_mode(False):  # a training step may save the table for its backward pass
                self.table = self.at(torch.arange(num_tokens, device="cpu")).to(self.table)
        return self.table[:, :num_tokens]

    def at(self, positions: Tensor) -> Tensor:
        """Compute cosines and sines of any positions, even beyond context_length: [...] -> float32 [2, ..., size]."""
        angles = positions[..., None].double() * self.frequencies(positions.device)
        tables = torch.stack([angles.cos(), angles.sin()]).float()
        return torch.cat([tables, tables], dim=-1)

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """Return RoPE's frequencies after `scaling`: radians per token for each pair of numbers, float64 [size / 2]."""
        frequencies = _frequencies(self.size, self.base, device)
        return frequencies if self.scaling is None else self.scaling.slowed(frequencies)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Apply RoPE to queries or keys [..., T, K]: rotate each pair (i, i + R/2) by cosines and sines [2, T, R].

    Only the first R numbers of each query or key are rotated.
    """
    cosines, sines = rotation
    if (R := cosines.shape[-1]) < x.shape[-1]:
        return torch.cat([rotate(x[..., :R], rotation), x[..., R:]], dim=-1)
    first, second = x.chunk(2, dim=-1)
    return (x * cosines + torch.cat([-second, first], dim=-1) * sines).to(x.dtype)


def _frequencies(size: int, base: float = 10000.0, device: torch.device | str | None = "cpu") -> Tensor:
    """Return the frequencies base^(-2i/size) for i = 0, 1, ...: float64 [ceil(size / 2)]."""
    return base ** (-torch.arange(0, size, 2, dtype=torch.float64, device=device) / size)
