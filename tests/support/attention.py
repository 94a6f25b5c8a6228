"""What tests of attention share: random numbers, how near two results are, and dropout as a kernel would compute it."""

import torch
from torch import Tensor

from gpt_cli.model.attention import attend, causal_bias
from gpt_cli.model.dropout import DropMasks


def draw(*shape: int) -> Tensor:
    """Draw numbers in float64, the same for each shape."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def by_products(queries: Tensor, keys: Tensor, values: Tensor, masks: DropMasks, scale: float) -> Tensor:
    """Draw the mask of the weights, then attend: [B, H, T, K] each -> [B, H, T, K]."""
    B, H, T, _ = queries.shape
    keep = masks.keep("weights", (B, H, T, T), queries.device).flatten(0, 1)
    flat = queries.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1)
    return attend(*flat, causal_bias(queries), scale, masks.rate, keep)[0].view(values.shape)
