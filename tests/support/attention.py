"""Attention with dropout as a kernel would compute it, by the products of `attend`."""

from __future__ import annotations

from torch import Tensor

from gpt_cli.model.attention import attend, causal_bias
from gpt_cli.model.dropout import ToDraw


def by_products(queries: Tensor, keys: Tensor, values: Tensor, masks: ToDraw, scale: float) -> Tensor:
    """Draw the mask of the weights, then attend: [B, H, T, K] each -> [B, H, T, K]."""
    B, H, T, _ = queries.shape
    keep = masks.keep("weights", (B, H, T, T), queries.device).flatten(0, 1)
    flat = queries.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1)
    return attend(*flat, causal_bias(queries), scale, masks.rate, keep)[0].view(values.shape)
