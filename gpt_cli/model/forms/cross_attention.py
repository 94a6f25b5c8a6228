"""Attention of one sequence to another, and masks for padding: parts of encoders and decoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.model.attention import (
    Attention,
    attend,
    attention_scores,
    attention_weights,
    concatenate_layers,
    join_heads,
)


def padding_mask(ids: Tensor, padding: int) -> Tensor:
    """Return True at keys that are padding, the same for every query: ids [B, S] -> bool [B, 1, S]."""
    return (ids == padding)[:, None, :]


def masked_weights(scores: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """softmax(scores * scale) over the keys that the mask does not hide: [..., T, S] -> [..., T, S].

    Exactly zero where the mask is True. A row whose keys are all hidden is zero, not NaN, and so is its gradient.
    """
    if mask is None:
        return (scores * scale).softmax(dim=-1)
    nowhere = mask.all(dim=-1, keepdim=True)
    return attention_weights(scores, mask & ~nowhere, scale).masked_fill(nowhere, 0)


class CrossAttention(nn.Module):
    """H heads whose queries come from one sequence and whose keys and values come from others.

    query [B, T, D], key and value [B, S, D] -> [B, T, D]; with one tensor for all three it is self-attention. `mask`,
    bool [T, S], [B, T, S] or [B, 1, S], is True where a query may not look; None lets each look everywhere. If `fused`,
    all heads run at once, else each head runs by itself. Vaswani et al. 2017, section 3.2.3.
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
        """Each head by itself, the outputs side by side: [B, T, D]."""
        outputs = []
        for head in self.heads:
            scores = attention_scores(head.Wq(query), head.Wk(key))
            outputs.append(head.dropout(masked_weights(scores, mask, head.scale)) @ head.Wv(value))
        return torch.cat(outputs, dim=-1)

    def fused_heads(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """Run all heads at once: [B, T, D]."""
        dropout = self.heads[0].dropout.p if self.training else 0.0
        mixed, _ = self._attend(query, key, value, mask, dropout)
        return join_heads(mixed)

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attention weights without dropout: [B, H, T, S]; a row sums to 1, or to 0 if all keys are hidden."""
        _, weights = self._attend(query, key, key, mask)
        return weights if mask is None else weights.masked_fill(_sees_nothing(mask), 0)

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Mixed values [B, H, T, K], and weights [B, H, T, S] that are uniform where the mask hides all keys."""
        B, H, T, S = len(query), len(self.heads), query.shape[1], key.shape[1]
        queries, keys, values = self._project("Wq", query), self._project("Wk", key), self._project("Wv", value)
        bias = None
        if mask is not None:
            bias = queries.new_zeros(mask.shape).masked_fill(mask & ~mask.all(dim=-1, keepdim=True), -torch.inf)
            bias = bias if mask.dim() == 2 else bias[:, None].expand(B, H, T, S).flatten(0, 1)
        mixed, weights = (
            part.unflatten(0, (B, H)) for part in attend(queries, keys, values, bias, self.heads[0].scale, dropout)
        )
        return mixed if mask is None else mixed.masked_fill(_sees_nothing(mask), 0), weights

    def _project(self, name: str, x: Tensor) -> Tensor:
        """Multiply by one matrix of every head in one product: [B, S, D] -> [B * H, S, K]."""
        projected = F.linear(x, *concatenate_layers([getattr(head, name) for head in self.heads]))
        return projected.unflatten(2, (len(self.heads), -1)).transpose(1, 2).flatten(0, 1)


def _sees_nothing(mask: Tensor) -> Tensor:
    """Return True at queries from which a mask [T, S] or [B, T, S] hides all keys: bool [T, 1] or [B, 1, T, 1]."""
    rows = mask.all(dim=-1, keepdim=True)
    return rows if mask.dim() == 2 else rows[:, None]
