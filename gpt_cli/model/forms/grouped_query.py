"""Grouped-query attention: heads of a group share keys and values, which makes the key-value cache smaller."""

from collections.abc import Sequence
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.model.attention import Projections, SelfAttention, concatenate_layers, score_scale
from gpt_cli.model.dropout import Dropout


class QueryHead(nn.Module):
    """The parameters of one query head: the projection Wq."""

    def __init__(self, d_model: int, head_size: int, *, qkv_bias: bool):
        super().__init__()
        self.Wq = nn.Linear(d_model, head_size, bias=qkv_bias)


class KeyValueGroup(nn.Module):
    """The parameters that the heads of a group share: the projections Wk and Wv."""

    def __init__(self, d_model: int, head_size: int, *, qkv_bias: bool):
        super().__init__()
        self.Wk = nn.Linear(d_model, head_size, bias=qkv_bias)
        self.Wv = nn.Linear(d_model, head_size, bias=qkv_bias)


class GroupedQueryAttention(SelfAttention):
    """Grouped-query attention, H heads in G groups, with an output projection: [B, T, D] -> [B, T, D].

    Head j has its own queries and uses the keys and values of group j // (H / G). With G = H, this is multi-head
    attention, with G = 1 multi-query attention (Shazeer 2019). Ainslie et al. 2023, section 2.2.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_key_value_heads: int,
        dropout: float = 0.0,
        *,
        bias: bool = True,
        qkv_bias: bool = False,
        scaled: bool = True,
        head_size: int | None = None,
        norm_epsilon: float | None = None,
    ):
        super().__init__()
        assert num_heads % num_key_value_heads == 0
        K = head_size or d_model // num_heads
        heads = nn.ModuleList(QueryHead(d_model, K, qkv_bias=qkv_bias) for _ in range(num_heads))
        self.heads = cast("Sequence[QueryHead]", heads)
        groups = nn.ModuleList(KeyValueGroup(d_model, K, qkv_bias=qkv_bias) for _ in range(num_key_value_heads))
        self.groups = cast("Sequence[KeyValueGroup]", groups)
        self.num_heads = num_heads
        self.projection_layer = nn.Linear(num_heads * K, d_model, bias=bias)
        self.add_norms(K, norm_epsilon)
        self.dropout = Dropout(dropout)
        self.scale = score_scale(K, scaled)

    def group_of(self, head: int) -> KeyValueGroup:
        """Return the group whose keys and values a head uses."""
        return self.groups[head * len(self.groups) // self.num_heads]

    def project_head(self, head: int, x: Tensor, rotation: Tensor | None) -> Projections:
        """Compute one head's queries, keys, values, each [B, T, K], from x [B, T, D]; no RoPE if `rotation` is None."""
        group = self.group_of(head)
        return *self.norm_and_rotate(self.heads[head].Wq(x), group.Wk(x), rotation), group.Wv(x)

    def project(self, x: Tensor, rotation: Tensor | None, heads: Sequence[int] | None = None) -> Projections:
        """Compute queries, keys, values [B, heads, T, K] of `heads` (None: all); no RoPE if `rotation` is None."""
        H, G = self.num_heads, len(self.groups)
        chosen = range(H) if heads is None else heads
        parts = (len(chosen), G, G)
        weights = self.shared_weights or self.projection_weights(chosen)
        projections = F.linear(x, *weights).unflatten(2, (sum(parts), -1)).transpose(1, 2)
        queries, keys, values = projections.split(parts, dim=1)
        queries, keys = self.norm_and_rotate(queries, keys, rotation)
        if heads is None:
            return queries, keys.repeat_interleave(H // G, dim=1), values.repeat_interleave(H // G, dim=1)
        groups = [head * G // H for head in heads]
        return queries, keys[:, groups], values[:, groups]

    def projection_weights(self, heads: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        """Concatenate Wq of `heads`, then Wk, then Wv of all G groups: weight [(heads + 2 G) x K, D], bias or None."""
        queries = [self.heads[head].Wq for head in heads]
        return concatenate_layers(queries + [getattr(group, name) for name in ("Wk", "Wv") for group in self.groups])
