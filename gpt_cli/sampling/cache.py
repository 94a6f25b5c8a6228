"""What decoding keeps of earlier tokens, and how new ones look at it, for each form of attention."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from gpt_cli.model import GroupedQueryAttention, LatentAttention, MultiHeadAttention
from gpt_cli.model.attention import SelfAttention, attend
from gpt_cli.model.positions import rotate
from gpt_cli.sampling.products import Products


@dataclass(frozen=True)
class Window:
    """Where the last T tokens of R rows stand among the slots of a cache, and what they see.

    They stand in slots `begin` to `end` and see those from `first` on. `mask`, in the form that `Cache.spread` gives
    it, is -inf where a query may not look and 0 elsewhere, None where it may look everywhere. `rotation`
    [2, R, 1, T, size] is that of rotary positions.
    """

    rows: slice | Tensor
    num_rows: int
    begin: int
    end: int
    first: int
    rotation: Tensor | None
    mask: Tensor | None


class Cache(ABC):
    """A layer's weights for attention, and what it keeps of each token of B rows in some slots."""

    num_groups: int  # of heads that look at the same keys

    def __init__(self, attention: SelfAttention, products: Products):
        self.num_heads = attention.num_heads
        self.scale = attention.scale
        self.dtype = products.dtype
        self.projection_layer = products.of(attention.projection_layer.weight, attention.projection_layer.bias)
        self.kept: Tensor  # slots are its last dimension but one

    @abstractmethod
    def shape(self, num_rows: int, num_slots: int) -> tuple[int, ...]:
        """Of what is kept."""

    @abstractmethod
    def mix(self, x: Tensor, window: Window) -> Tensor:
        """Keep the tokens whose inputs are x [R * T, D], and give what their heads make of all: [R * T, D]."""

    def begin(self, num_rows: int, num_slots: int, like: Tensor) -> None:
        """Make room for new rows; what is in it is nothing yet."""
        # not zeroed: a slot is written before it is read, and touching all of them costs 20 ms
        self.kept = like.new_empty(self.shape(num_rows, num_slots))

    def move(self, begin: int, end: int) -> None:
        """Bring slots `begin` to `end` to the front."""
        self.kept[..., : end - begin, :] = self.kept[..., begin:end, :].clone()

    def spread(self, mask: Tensor | None) -> Tensor | None:
        """A mask [R, 1, T, S] for the queries of each group, which stand below each other: [R * G, H // G * T, S]."""
        if mask is None:
            return None
        R, _, T, S = mask.shape
        H, G = self.num_heads, self.num_groups
        return mask.expand(R, H, T, S).reshape(R * G, H // G * T, S)


class KeyValueCache(Cache):
    """Keeps keys and values of G heads [2, B, G, slots, K], of multi-head (G = H) and grouped-query attention."""

    def __init__(self, attention: MultiHeadAttention | GroupedQueryAttention, products: Products):
        super().__init__(attention, products)
        grouped = isinstance(attention, GroupedQueryAttention)
        self.num_groups = len(attention.groups) if grouped else attention.num_heads
        self.head_size = attention.projection_layer.in_features // attention.num_heads
        self.queries_keys_values = products.of(attention.projection_weights(range(attention.num_heads)))

    def shape(self, num_rows: int, num_slots: int) -> tuple[int, ...]:
        """Of what is kept."""
        return 2, num_rows, self.num_groups, num_slots, self.head_size

    def mix(self, x: Tensor, window: Window) -> Tensor:
        """Keep the tokens whose inputs are x [R * T, D], and give what their heads make of all: [R * T, D]."""
        R, T = window.num_rows, window.end - window.begin
        H, G, K = self.num_heads, self.num_groups, self.head_size
        projections = self.queries_keys_values(x.to(self.dtype)).to(x.dtype).view(R, T, H + 2 * G, K).transpose(1, 2)
        turning, values = projections.split((H + G, G), dim=1)
        if window.rotation is not None:
            turning = rotate(turning, window.rotation)
        queries, keys = turning.split((H, G), dim=1)
        self.kept[0][window.rows, :, window.begin : window.end] = keys
        self.kept[1][window.rows, :, window.begin : window.end] = values
        keys, values = self.kept[:, window.rows, :, window.first : window.end]
        mixed, _ = attend(queries.reshape(R, G, H // G * T, K), keys, values, window.mask, self.scale)
        return mixed.view(R, H, T, K).transpose(1, 2).reshape(R * T, H * K)


class LatentCache(Cache):
    """Keeps the latent and the rotary key alone: [B, slots, C + R].

    W_UK and W_UV are never applied to what is kept. (W_UQ q) · (W_UK c) = (W_UKᵀ W_UQ q) · c, so each query is brought
    to the width of the latent, and all heads look at the latents themselves; of the mix of these W_UV makes the
    head's output. DeepSeek-AI 2024, section 2.1.2.
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
        """Of what is kept."""
        return num_rows, num_slots, self.latent_size + self.rotary_size

    def mix(self, x: Tensor, window: Window) -> Tensor:
        """Keep the tokens whose inputs are x [R * T, D], and give what their heads make of all: [R * T, D]."""
        N, T, R = window.num_rows, window.end - window.begin, self.rotary_size
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
        self.kept[window.rows, window.begin : window.end] = latents
        keys = self.kept[window.rows, window.first : window.end]
        queries, keys = absorbed.reshape(N, 1, H * T, C + R), keys[:, None]
        mixed, _ = attend(queries, keys, keys[..., :C], window.mask, self.scale)
        outputs = self.absorbed_values(mixed.view(N, H, T, C).transpose(0, 1).reshape(H, N * T, C))
        return outputs.transpose(0, 1).reshape(N * T, H * K)


def make_cache(attention: SelfAttention, products: Products) -> Cache:
    """The cache of a layer, in the form that its attention has."""
    if isinstance(attention, LatentAttention):
        return LatentCache(attention, products)
    assert isinstance(attention, MultiHeadAttention | GroupedQueryAttention)
    return KeyValueCache(attention, products)
