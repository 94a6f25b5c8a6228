"""Attention of one layer in decoding: what it keeps of earlier tokens, and how new tokens look at them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpt_cli.config.model import unknown_form
from gpt_cli.model import GroupedQueryAttention, LatentAttention, MultiHeadAttention
from gpt_cli.model.attention import SelfAttention, attend
from gpt_cli.model.positions import rotate
from gpt_cli.sampling.products import Products


@dataclass(frozen=True)
class Window:
    """The slots of a cache that hold the last T tokens of R rows, and the slots that these tokens see.

    The tokens are in slots `start` to `end` and see the slots from `first` on. `bias` comes from `Cache.spread`: -inf
    where a query may not look, 0 elsewhere; None lets each look everywhere. `rotation` [2, R, 1, T, size] is that of
    rotary positions.
    """

    rows: slice | Tensor
    num_rows: int
    start: int
    end: int
    first: int
    rotation: Tensor | None
    bias: Tensor | None


class Cache(ABC):
    """The attention of a layer in decoding: copies of its weights, and slots for the tokens of B rows."""

    num_groups: int  # of heads that look at the same keys

    def __init__(self, attention: SelfAttention, products: Products):
        self.distance_bias = attention.distance_bias
        self.num_heads = attention.num_heads
        self.scale = attention.scale
        self.dtype = products.dtype
        self.projection_layer = products.of(attention.projection_layer.weight, attention.projection_layer.bias)
        self.kept: Tensor  # slots are its last dimension but one

    @abstractmethod
    def shape(self, num_rows: int, num_slots: int) -> tuple[int, ...]:
        """The shape of `kept`."""

    @abstractmethod
    def mix(self, x: Tensor, window: Window) -> Tensor:
        """Keep the tokens whose inputs are x [R * T, D]; returns the outputs of their heads [R * T, D]."""

    def make_room(self, num_rows: int, num_slots: int, like: Tensor) -> None:
        """Allocate slots for new rows, with undefined contents."""
        # not zeroed: a slot is written before it is read, and touching all of them costs 20 ms
        self.kept = like.new_empty(self.shape(num_rows, num_slots))

    def move(self, start: int, end: int) -> None:
        """Move slots `start` to `end` to the front."""
        self.kept[..., : end - start, :] = self.kept[..., start:end, :].clone()

    def spread(self, bias: Tensor) -> Tensor:
        """A bias [R, 1 or H, T, S] for all queries of each group, one head below another: [R * G, H // G * T, S]."""
        R, _, T, S = bias.shape
        H, G = self.num_heads, self.num_groups
        return bias.expand(R, H, T, S).reshape(R * G, H // G * T, S)


class KeyValueCache(Cache):
    """Keeps keys and values of G heads [2, B, G, slots, K], for multi-head (G = H) and grouped-query attention."""

    def __init__(self, attention: MultiHeadAttention | GroupedQueryAttention, products: Products):
        super().__init__(attention, products)
        grouped = isinstance(attention, GroupedQueryAttention)
        self.num_groups = len(attention.groups) if grouped else attention.num_heads
        self.head_size = attention.projection_layer.in_features // attention.num_heads
        self.queries_keys_values = products.of(*attention.projection_weights(range(attention.num_heads)))

    def shape(self, num_rows: int, num_slots: int) -> tuple[int, ...]:
        """The shape of `kept`."""
        return 2, num_rows, self.num_groups, num_slots, self.head_size

    def mix(self, x: Tensor, window: Window) -> Tensor:
        """Keep the tokens whose inputs are x [R * T, D]; returns the outputs of their heads [R * T, D]."""
        R, T = window.num_rows, window.end - window.start
        H, G, K = self.num_heads, self.num_groups, self.head_size
        projections = self.queries_keys_values(x.to(self.dtype)).to(x.dtype).view(R, T, H + 2 * G, K).transpose(1, 2)
        turning, values = projections.split((H + G, G), dim=1)
        if window.rotation is not None:
            turning = rotate(turning, window.rotation)
        queries, keys = turning.split((H, G), dim=1)
        self.kept[0][window.rows, :, window.start : window.end] = keys
        self.kept[1][window.rows, :, window.start : window.end] = values
        keys, values = self.kept[:, window.rows, :, window.first : window.end].view(2, R * G, -1, K)
        mixed, _ = attend(queries.reshape(R * G, H // G * T, K), keys, values, window.bias, self.scale)
        return mixed.view(R, H, T, K).transpose(1, 2).reshape(R * T, H * K)


class LatentCache(Cache):
    """Keeps only the latent and the rotary key: [B, slots, C + R].

    W_UK and W_UV never touch what the cache keeps. (W_UQ q) · (W_UK c) = (W_UKᵀ W_UQ q) · c, so each query gets the
    width of the latent and all heads look at the latents themselves; W_UV turns their mix into the output of the head.
    DeepSeek-AI 2024, section 2.1.2.
    """

    num_groups = 1

    def __init__(self, attention: LatentAttention, products: Products):
        super().__init__(attention, products)
        heads, every = attention.heads, range(attention.num_heads)
        self.head_size, self.latent_size = heads[0].W_UK.weight.shape
        self.rotary_size = 0 if attention.W_KR is None else attention.W_KR.out_features
        kept = [part.weight for part in (attention.W_DKV, attention.W_KR) if part is not None]
        queries = attention.query_weights(every)
        self.query_source = None if attention.W_DQ is None else products.of(attention.W_DQ.weight)
        self.queries = products.of(queries)
        self.to_keep = products.of(torch.cat(kept))
        self.absorbed_keys = products.batched([head.W_UK.weight for head in heads], transposed=True)
        self.absorbed_values = products.batched([head.W_UV.weight for head in heads])

    def shape(self, num_rows: int, num_slots: int) -> tuple[int, ...]:
        """The shape of `kept`."""
        return num_rows, num_slots, self.latent_size + self.rotary_size

    def mix(self, x: Tensor, window: Window) -> Tensor:
        """Keep the tokens whose inputs are x [R * T, D]; returns the outputs of their heads [R * T, D]."""
        N, T, R = window.num_rows, window.end - window.start, self.rotary_size
        H, K, C = self.num_heads, self.head_size, self.latent_size
        lower = x.to(self.dtype)
        queries = self.queries(lower if self.query_source is None else self.query_source(lower))
        queries = queries.to(x.dtype).view(N, T, H, K + R)
        latents = self.to_keep(lower).to(x.dtype).view(N, T, C + R)
        absorbed = self.absorbed_keys(queries[..., :K].reshape(N * T, H, K).transpose(0, 1))  # [H, N * T, C]
        absorbed = absorbed.view(H, N, T, C).transpose(0, 1)
        if window.rotation is not None:
            turned = rotate(queries[..., K:].transpose(1, 2), window.rotation)
            absorbed = torch.cat([absorbed, turned], dim=-1)
            latents = torch.cat([latents[..., :C], rotate(latents[..., C:], window.rotation[:, :, 0])], dim=-1)
        self.kept[window.rows, window.start : window.end] = latents
        keys = self.kept[window.rows, window.first : window.end]
        mixed, _ = attend(absorbed.reshape(N, H * T, C + R), keys, keys[..., :C], window.bias, self.scale)
        outputs = self.absorbed_values(mixed.view(N, H, T, C).transpose(0, 1).reshape(H, N * T, C))
        return outputs.transpose(0, 1).reshape(N * T, H * K)


CACHES: Mapping[type[SelfAttention], Callable[[Any, Products], Cache]] = {
    MultiHeadAttention: KeyValueCache,
    GroupedQueryAttention: KeyValueCache,
    LatentAttention: LatentCache,
}


def make_cache(attention: SelfAttention, products: Products) -> Cache:
    """The cache for the form of attention that a layer has."""
    # not that of a form from which this one is derived, which may keep something else
    if type(attention) not in CACHES:
        raise unknown_form("sampling", type(attention).__name__)
    return CACHES[type(attention)](attention, products)
