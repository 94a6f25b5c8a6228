"""Attention: one head, written out; and many heads, which train by a fused twin on the same parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.model.dropout import Dropout, drop_out
from gpt_cli.model.positions import rotate


def causal_mask(num_tokens: int, device: torch.device | None = None) -> Tensor:
    """True where a query may not look, at the keys after it: bool [T, T]."""
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool, device=device).triu(1)


def attention_scores(queries: Tensor, keys: Tensor) -> Tensor:
    """The product of each query with each key: [..., T, K], [..., T, K] -> [..., T, T]."""
    return queries @ keys.transpose(-2, -1)


def score_scale(size: int, scaled: bool = True) -> float:
    """What scores of queries and keys of some size are multiplied with: 1 / sqrt(size), or 1 where not scaled."""
    return size**-0.5 if scaled else 1.0


def attention_weights(scores: Tensor, mask: Tensor, scale: float) -> Tensor:
    """softmax(scores * scale) over the keys that the mask leaves: [..., T, T] -> [..., T, T].

    Each row sums to 1. Vaswani et al. 2017, eq. 1, where the scale is 1 / sqrt(K).
    """
    return (scores * scale).masked_fill(mask, -torch.inf).softmax(dim=-1)


class Stages(NamedTuple):
    """Everything that happens in a head: queries, keys, values and output [B, T, K], scores and weights [B, T, T]."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    scores: Tensor
    weights: Tensor
    heads: Tensor


def head_stages(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Stages:
    """What one causal head does with its queries, keys and values [B, T, K], step by step."""
    scores = attention_scores(queries, keys)
    weights = attention_weights(scores, causal_mask(queries.shape[-2], queries.device), scale)
    return Stages(queries, keys, values, scores, weights, weights @ values)


class Attention(nn.Module):
    """One causal head: [B, T, D] -> [B, T, K]. Vaswani et al. 2017, section 3.2.1.

    Scores are divided by sqrt(K) if `scaled`.
    """

    def __init__(self, d_model: int, head_size: int, dropout: float = 0.0, *, scaled: bool = True):
        super().__init__()
        self.Wq = nn.Linear(d_model, head_size, bias=False)
        self.Wk = nn.Linear(d_model, head_size, bias=False)
        self.Wv = nn.Linear(d_model, head_size, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.scale = score_scale(head_size, scaled)

    def stages(self, x: Tensor, rotation: Tensor | None = None) -> Stages:
        """The computation without dropout, step by step; `rotation` [2, T, K] turns queries and keys."""
        queries, keys = self.Wq(x), self.Wk(x)
        if rotation is not None:
            queries, keys = rotate(queries, rotation), rotate(keys, rotation)
        return head_stages(queries, keys, self.Wv(x), self.scale)

    def weights(self, x: Tensor, rotation: Tensor | None = None) -> Tensor:
        """Where each token looks: [B, T, D] -> [B, T, T]; row t sums to 1 over tokens 0..t and is 0 after."""
        return self.stages(x, rotation).weights

    def forward(self, x: Tensor, rotation: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """The mixed values; in training `keep` [B, T, T] says which weights stay, else torch draws."""
        stages = self.stages(x, rotation)
        weights = self.dropout(stages.weights) if keep is None else drop_out(stages.weights, keep, self.dropout.p)
        return weights @ stages.values


class SelfAttention(nn.Module, ABC):
    """What the forms of causal attention with H heads share: [B, T, D] -> [B, T, D].

    A form has parameters, and says twice how they make queries, keys and values of x: for one head (`head_stages`) and
    for all at once (`project`). `fused` computes all heads in a few large products; off, each head computes itself.
    Same parameters, same result up to rounding.
    """

    num_heads: int
    projection_layer: nn.Linear
    dropout: Dropout
    scale: float
    fused = True

    @abstractmethod
    def head_stages(self, head: int, x: Tensor, rotation: Tensor | None) -> Stages:
        """The stages of one head by itself, without dropout; `rotation` [2, T, K] turns queries and keys."""

    @abstractmethod
    def project(
        self, x: Tensor, rotation: Tensor | None, heads: Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of some heads at once, None stands for all: each [B, heads, T, K]."""

    def forward(self, x: Tensor, rotation: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """In training `keep` [B, H, T, T] says which weights stay, else torch draws."""
        mixed = self.fused_heads(x, rotation, keep) if self.fused else self.separate_heads(x, rotation, keep)
        return self.projection_layer(mixed)

    def separate_heads(self, x: Tensor, rotation: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """Each head by itself, side by side: [B, T, D] -> [B, T, D]."""
        outputs = []
        rate = self.dropout.p if self.training else 0.0
        for head in range(self.num_heads):
            stages = self.head_stages(head, x, rotation)
            weights = F.dropout(stages.weights, rate) if keep is None else drop_out(stages.weights, keep[:, head], rate)
            outputs.append(weights @ stages.values)
        return torch.cat(outputs, dim=-1)

    def fused_heads(self, x: Tensor, rotation: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """All heads at once: [B, T, D] -> [B, T, D]."""
        rate = self.dropout.p if self.training else 0.0
        return join_heads(mix_heads(*self.project(x, rotation), self.scale, rate, keep))

    def stages(self, x: Tensor, rotation: Tensor | None, heads: Sequence[int]) -> Stages:
        """The stages of some heads, each [B, heads, T, K] or [B, heads, T, T]."""
        return batched_stages(*self.project(x, rotation, heads), self.scale)


class MultiHeadAttention(SelfAttention):
    """H heads side by side, then a projection: [B, T, D] -> [B, T, D]. Vaswani et al. 2017, section 3.2.2."""

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0, *, bias: bool = True, scaled: bool = True):
        super().__init__()
        heads = (Attention(d_model, d_model // num_heads, dropout, scaled=scaled) for _ in range(num_heads))
        self.heads = cast("Sequence[Attention]", nn.ModuleList(heads))
        self.num_heads = num_heads
        self.projection_layer = nn.Linear(d_model, d_model, bias=bias)
        self.dropout = Dropout(dropout)
        self.scale = self.heads[0].scale

    def head_stages(self, head: int, x: Tensor, rotation: Tensor | None) -> Stages:
        """The stages of one head by itself."""
        return self.heads[head].stages(x, rotation)

    def separate_heads(self, x: Tensor, rotation: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """Each head by itself, side by side: [B, T, D] -> [B, T, D]."""
        outputs = [
            head(x, rotation, None if keep is None else keep[:, number]) for number, head in enumerate(self.heads)
        ]
        return torch.cat(outputs, dim=-1)

    def project(
        self, x: Tensor, rotation: Tensor | None, heads: Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of some heads in one product, None stands for all: each [B, heads, T, K]."""
        chosen = range(self.num_heads) if heads is None else heads
        projections = F.linear(x, self.projection_weights(chosen))  # [B, T, 3 x heads x K]
        queries, keys, values = projections.unflatten(2, (3, len(chosen), -1)).permute(2, 0, 3, 1, 4)
        if rotation is not None:
            queries, keys = rotate(queries, rotation), rotate(keys, rotation)
        return queries, keys, values

    def projection_weights(self, heads: Sequence[int]) -> Tensor:
        """Wq of some heads, then Wk, then Wv, in one matrix: [3 x heads x K, D]; gradients flow back to the heads."""
        chosen = [self.heads[head] for head in heads]
        return torch.cat([getattr(head, name).weight for name in ("Wq", "Wk", "Wv") for head in chosen])


def join_heads(heads: Tensor) -> Tensor:
    """The outputs of all heads side by side, as a projection layer wants them: [B, H, T, K] -> [B, T, D]."""
    return heads.transpose(1, 2).flatten(2)


def mix_heads(
    queries: Tensor, keys: Tensor, values: Tensor, scale: float, dropout: float, keep: Tensor | None
) -> Tensor:
    """Causal attention of many heads at once: each [B, H, T, K] -> [B, H, T, K].

    On a CPU the formula in batched form, which is faster than the flash kernel at these lengths; on CUDA a kernel of
    torch's choice where no weights are dropped. `keep` [B, H, T, T] says which weights stay, else torch draws.
    """
    if queries.is_cuda and not dropout:
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=scale)
    weights = _batched_weights(queries, keys, scale)
    if keep is not None:
        weights = drop_out(weights, keep.flatten(0, 1), dropout)
    elif dropout:
        weights = F.dropout(weights, dropout)
    return torch.bmm(weights, values.flatten(0, 1)).unflatten(0, queries.shape[:2])


def batched_stages(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Stages:
    """The stages of many heads at once, from what was projected: each [B, H, T, K]."""
    weights = _batched_weights(queries, keys, scale).unflatten(0, queries.shape[:2])
    return Stages(queries, keys, values, attention_scores(queries, keys), weights, weights @ values)


def _batched_weights(queries: Tensor, keys: Tensor, scale: float) -> Tensor:
    """`attention_weights` of queries and keys [B, H, T, K] under the causal mask, in fewer passes: [B*H, T, T]."""
    T = queries.shape[-2]
    # added to the scores inside their product, which saves a pass over them
    future = queries.new_zeros(T, T).masked_fill(causal_mask(T, queries.device), -torch.inf)
    scores = torch.baddbmm(future, queries.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2), alpha=scale)
    return scores.softmax(dim=-1)
