"""Attention of one sequence to another, and masks for padding: the parts of encoders and decoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from gpt_cli.model.attention import Attention, attention_scores


def padding_mask(ids: Tensor, padding: int) -> Tensor:
    """True at the keys that are padding, for every query: ids [B, S] -> bool [B, 1, S]."""
    return (ids == padding)[:, None, :]


def masked_weights(scores: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """softmax(scores * scale) over the keys that the mask leaves: [..., T, S] -> [..., T, S].

    Exactly zero where the mask is True; a row that may look nowhere is zero, not NaN, and so is its gradient.
    """
    scores = scores * scale
    if mask is None:
        return scores.softmax(dim=-1)
    nowhere = mask.all(dim=-1, keepdim=True)
    return scores.masked_fill(mask & ~nowhere, -torch.inf).softmax(dim=-1).masked_fill(mask, 0)


class CrossAttention(nn.Module):
    """H heads whose queries come from one sequence and whose keys and values come from others.

    query [B, T, D], key and value [B, S, D] -> [B, T, D]; with all three the same it is self-attention. `mask`, bool
    [T, S] or [B, T, S] or [B, 1, S], is True where a query may not look; without it each looks everywhere.
    Vaswani et al. 2017, section 3.2.3.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0, *, bias: bool = True):
        super().__init__()
        heads = (Attention(d_model, d_model // num_heads, dropout) for _ in range(num_heads))
        self.heads = cast("Sequence[Attention]", nn.ModuleList(heads))
        self.projection_layer = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        weights = self.weights(query, key, mask)
        mixed = [head.dropout(weights[:, number]) @ head.Wv(value) for number, head in enumerate(self.heads)]
        return self.projection_layer(torch.cat(mixed, dim=-1))

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        """Where each query looks, without dropout: [B, H, T, S]; a row sums to 1, or to 0 where it may look nowhere."""
        of_heads = []
        for head in self.heads:
            scores = attention_scores(head.Wq(query), head.Wk(key))
            of_heads.append(masked_weights(scores, mask, head.scale))
        return torch.stack(of_heads, dim=1)
