"""Attention of one sequence to another, and masks for padding: the parts of encoders and decoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.model.attention import Attention, attention_scores, join_heads


def padding_mask(ids: Tensor, padding: int) -> Tensor:
    """True at the keys that are padding, for every query: ids [B, S] -> bool [B, 1, S]."""
    return (ids == padding)[:, None, :]


def masked_weights(scores: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """softmax(scores * scale) over the keys that the mask leaves: [..., T, S] -> [..., T, S].

    Exactly zero where the mask is True; a row that may look nowhere is zero, not NaN, and so is its gradient.
    """
    if mask is None:
        return (scores * scale).softmax(dim=-1)
    nowhere = mask.all(dim=-1, keepdim=True)
    # scaled and masked in one pass
    hidden = scores.new_zeros(mask.shape).masked_fill(mask & ~nowhere, -torch.inf)
    weights = torch.add(hidden, scores, alpha=scale).softmax(dim=-1)
    return weights.masked_fill(nowhere, 0) if nowhere.any() else weights


class CrossAttention(nn.Module):
    """H heads whose queries come from one sequence and whose keys and values come from others.

    query [B, T, D], key and value [B, S, D] -> [B, T, D]; with all three the same it is self-attention. `mask`, bool
    [T, S] or [B, T, S] or [B, 1, S], is True where a query may not look; without it each looks everywhere. `fused`
    computes all heads at once; off, each head computes itself. Vaswani et al. 2017, section 3.2.3.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0, *, bias: bool = True):
        super().__init__()
        heads = (Attention(d_model, d_model // num_heads, dropout) for _ in range(num_heads))
        self.heads = cast("Sequence[Attention]", nn.ModuleList(heads))
        self.projection_layer = nn.Linear(d_model, d_model, bias=bias)
        self.fused = True

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        mix = self.fused_heads if self.fused else self.separate_heads
        return self.projection_layer(mix(query, key, value, mask))

    def separate_heads(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """Each head by itself, side by side: [B, T, D]."""
        outputs = []
        for head in self.heads:
            scores = attention_scores(head.Wq(query), head.Wk(key))
            outputs.append(head.dropout(masked_weights(scores, mask, head.scale)) @ head.Wv(value))
        return torch.cat(outputs, dim=-1)

    def fused_heads(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """All heads at once: [B, T, D]."""
        weights = self.heads[0].dropout(self.weights(query, key, mask))
        return join_heads(weights @ self._project("Wv", value))

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        """Where each query looks, without dropout: [B, H, T, S]; a row sums to 1, or to 0 where it may look nowhere."""
        scores = attention_scores(self._project("Wq", query), self._project("Wk", key))
        of_heads = mask if mask is None or mask.dim() == 2 else mask[:, None]
        return masked_weights(scores, of_heads, self.heads[0].scale)

    def _project(self, name: str, x: Tensor) -> Tensor:
        """One matrix of every head in one product: [B, S, D] -> [B, H, S, K]."""
        matrix = torch.cat([getattr(head, name).weight for head in self.heads])
        return F.linear(x, matrix).unflatten(2, (len(self.heads), -1)).transpose(1, 2)
