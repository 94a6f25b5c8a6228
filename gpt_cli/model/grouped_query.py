"""Attention whose heads share keys and values in groups, so that a cache holds fewer of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.model.attention import Stages, batched_stages, head_stages, join_heads, mix_heads
from gpt_cli.model.dropout import Dropout, drop_out
from gpt_cli.model.positions import rotate


class QueryHead(nn.Module):
    """What a head has of its own: the matrix Wq."""

    def __init__(self, d_model: int, head_size: int):
        super().__init__()
        self.Wq = nn.Linear(d_model, head_size, bias=False)


class KeyValueGroup(nn.Module):
    """What the heads of a group share: the matrices Wk and Wv."""

    def __init__(self, d_model: int, head_size: int):
        super().__init__()
        self.Wk = nn.Linear(d_model, head_size, bias=False)
        self.Wv = nn.Linear(d_model, head_size, bias=False)


class GroupedQueryAttention(nn.Module):
    """H heads in G groups, then a projection: [B, T, D] -> [B, T, D]. Ainslie et al. 2023, section 2.2.

    Head j looks with its own queries at the keys and values of group j // (H / G). With G = H it is multi-head
    attention, with G = 1 multi-query attention (Shazeer 2019). `fused` computes all heads in a few large products; off,
    each head computes itself. Same parameters, same result up to rounding.
    """

    def __init__(
        self, d_model: int, num_heads: int, num_key_value_heads: int, dropout: float = 0.0, *, bias: bool = True
    ):
        super().__init__()
        assert num_heads % num_key_value_heads == 0
        K = d_model // num_heads
        self.heads = cast("Sequence[QueryHead]", nn.ModuleList(QueryHead(d_model, K) for _ in range(num_heads)))
        groups = nn.ModuleList(KeyValueGroup(d_model, K) for _ in range(num_key_value_heads))
        self.groups = cast("Sequence[KeyValueGroup]", groups)
        self.projection_layer = nn.Linear(d_model, d_model, bias=bias)
        self.dropout = Dropout(dropout)
        self.fused = True

    def forward(self, x: Tensor, rotation: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """In training `keep` [B, H, T, T] says which weights stay, else torch draws."""
        mixed = self.fused_heads(x, rotation, keep) if self.fused else self.separate_heads(x, rotation, keep)
        return self.projection_layer(mixed)

    def matrices(self, head: int) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
        """Wq of a head, Wk and Wv of its group."""
        group = self.groups[head * len(self.groups) // len(self.heads)]
        return self.heads[head].Wq, group.Wk, group.Wv

    def separate_heads(self, x: Tensor, rotation: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """Each head by itself, side by side: [B, T, D] -> [B, T, D]."""
        outputs = []
        rate = self.dropout.p if self.training else 0.0
        for number in range(len(self.heads)):
            stages = head_stages(*self.matrices(number), x, rotation)
            weights = (
                F.dropout(stages.weights, rate) if keep is None else drop_out(stages.weights, keep[:, number], rate)
            )
            outputs.append(weights @ stages.values)
        return torch.cat(outputs, dim=-1)

    def fused_heads(self, x: Tensor, rotation: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """All heads at once: [B, T, D] -> [B, T, D]."""
        projected = self._project(x, rotation)
        return join_heads(mix_heads(*projected, self.dropout.p if self.training else 0.0, keep))

    def stages(self, x: Tensor, rotation: Tensor | None, heads: Sequence[int]) -> Stages:
        """The stages of some heads, each [B, heads, T, K] or [B, heads, T, T]."""
        return batched_stages(*(part[:, list(heads)] for part in self._project(x, rotation)))

    def projection_weights(self) -> Tensor:
        """Wq of every head, then Wk of every group, then Wv, in one matrix: [(H + 2 G) K, D]."""
        queries = [head.Wq.weight for head in self.heads]
        return torch.cat(queries + [getattr(group, name).weight for name in ("Wk", "Wv") for group in self.groups])

    def _project(self, x: Tensor, rotation: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of all heads, those of a group repeated for each of its heads: each [B, H, T, K]."""
        H, G = len(self.heads), len(self.groups)
        projections = F.linear(x, self.projection_weights()).unflatten(2, (H + 2 * G, -1)).transpose(1, 2)
        queries, keys, values = projections.split((H, G, G), dim=1)
        if rotation is not None:
            queries, keys = rotate(queries, rotation), rotate(keys, rotation)
        return queries, keys.repeat_interleave(H // G, dim=1), values.repeat_interleave(H // G, dim=1)
