"""Attention of one layer in decoding: new tokens attend to the cached keys and values of earlier tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpt_cli.common.machine.devices import to_device
from gpt_cli.config.model import unknown_form
from gpt_cli.model import GroupedQueryAttention, LatentAttention, MultiHeadAttention
from gpt_cli.model.attention import SelfAttention, attend
from gpt_cli.model.positions import rotate
from gpt_cli.sampling.fast.matmul import Products

# limits of a part of a long prompt: queries, so that few of its scores are masked, and scores of a row in all heads,
# 64 MiB in float32
QUERIES_AT_ONCE, SCORES_AT_ONCE = 128, 2**24


@dataclass(frozen=True)
class DecodeStep:
    """A decoding step that runs the last T tokens of R sequences, in cache slots (one per token) `start` to `end` - 1.

    `rows` selects the R sequences among the B of a cache. `starts` has the first slot that each of the R sequences
    reads, after padding or outdated tokens. Slot 0 has the longest prompt's first token. If T > 1, the T tokens attend
    only to each other, not to earlier slots. `rotation`, None or [2, R, 1, T, size], has RoPE's cosines and sines.
    """

    rows: slice | Tensor
    starts: Sequence[int]
    start: int
    end: int
    rotation: Tensor | None
    biases: dict[int, Tensor | None] = field(default_factory=dict)  # of layers with the same reach

    def hidden(self, first: int, start: int, end: int, reach: int, like: Tensor) -> Tensor | None:
        """Return the attention mask, -inf where a query must not attend, else 0: [R, 1, end - start, end - first].

        Queries are in slots `start` to `end` - 1, keys in `first` to `end` - 1; a query has at most `reach` keys. The
        mask has dtype and device of `like`; None hides nothing. Padding attends to itself, because softmax needs a key.
        """
        if end - start == 1 and max(self.starts) <= first:
            return None
        keys = torch.arange(first, end, device=like.device)
        query = torch.arange(start, end, device=like.device)[:, None]
        starts = to_device(torch.tensor(self.starts), like.device)[:, None, None]
        oldest = torch.maximum(starts, query - reach + 1)  # [R, T, 1]
        hidden = (keys > query) | ((keys < oldest) & (keys != query))
        return like.new_zeros(hidden.shape).masked_fill(hidden, -torch.inf)[:, None]

    def visible_slots(self, cache: Cache) -> slice | None:
        """Return the slots to attend to, counted from `cache.base`.

        Returns None if the cache keeps only the last of T tokens (T > cache.reach); they then attend to their own keys.
        """
        num_tokens, end = self.end - self.start, self.end - cache.base
        if num_tokens > cache.reach:
            return None
        return slice(max(0, end - cache.reach) if num_tokens == 1 else end - num_tokens, end)

    def write(self, cache: Cache, slots: Tensor, new: Tensor) -> None:
        """Write the tokens' keys, values or latents [R, ..., T, size] to the cache's `slots` [B, ..., slots, size]."""
        if new.shape[-2] > cache.reach:
            new = new[..., -cache.reach :, :]
        end = self.end - cache.base
        slots[self.rows, ..., end - new.shape[-2] : end, :] = new

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float) -> Tensor:
        """Compute attention like `gpt_cli.model.attention.attend`; return only outputs of N heads [N, T, K']."""
        return attend(queries, keys, values, bias, scale)[0]


class Cache(ABC):
    """The attention of one layer in decoding: copies of its weights, and a cache slot for each token of B sequences.

    A token attends to at most `reach` tokens, itself included. Slot 0 has the longest prompt's first token; `base` is
    the first slot in memory. Memory has at most 2 `reach` slots; when all are full, the cache drops the oldest half.
    """

    num_groups: int  # of heads that attend to the same keys

    def __init__(self, attention: SelfAttention, products: Products, context_length: int):
        self.num_heads = attention.num_heads
        self.scale = attention.scale
        self.reach = min(attention.window or context_length, context_length)
        self.dtype = products.dtype
        self.projection_layer = products.of(attention.projection_layer.weight, attention.projection_layer.bias)
        self.base = self.num_rows = self.num_slots = 0
        self.slots: Tensor  # their number is its last dimension but one

    @abstractmethod
    def shape(self, num_rows: int, num_slots: int) -> tuple[int, ...]:
        """Return the shape of the tensor `slots`, such as [2, num_rows, groups, num_slots, K] for keys and values."""

    @abstractmethod
    def mix(self, x: Tensor, step: DecodeStep) -> Tensor:
        """Cache T new tokens of R sequences, x [R * T, D], and attend; return the heads' outputs [R * T, H * K]."""

    def begin(self, num_rows: int, length: int, num_new_tokens: int, like: Tensor) -> None:
        """Make room for `num_rows` new sequences of `length` + `num_new_tokens` tokens; `like` has dtype and device."""
        self.base = max(0, length - self.reach)
        num_slots = min(2 * self.reach, length - self.base + num_new_tokens)
        if num_rows != self.num_rows or num_slots > self.num_slots:
            # a CPU reads no slot before it is written, and touching all costs 20 ms; a recorded step multiplies all
            new = like.new_empty if like.device.type == "cpu" else like.new_zeros
            self.slots = like.new_empty(0)  # the old ones are free before there are new ones
            self.slots = new(self.shape(num_rows, num_slots))
            self.num_rows, self.num_slots = num_rows, num_slots

    def make_room(self, end: int) -> None:
        """Make room for a token in slot `end`: if memory is full, drop the slots that no later token attends to."""
        if end - self.base == self.num_slots:
            assert self.num_slots == 2 * self.reach, "more tokens than `begin` made room for"
            self.slots[..., : self.reach, :] = self.slots[..., self.reach :, :].clone()
            self.base += self.reach

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, step: DecodeStep) -> Tensor:
        """Compute attention: queries [R, H, T, K], keys [R * G, S, K], values [R * G, S, K'] -> [R, H, T, K'].

        There are R sequences, G groups of heads and S keys. Long prompts are computed some queries at a time.
        """
        H, T, S = self.num_heads, queries.shape[2], keys.shape[1]
        size = max(1, min(SCORES_AT_ONCE // (H * S), QUERIES_AT_ONCE))
        if size >= T:
            bias = self._bias(step, step.end - S, step.start, step.end, queries)
            return self._mixed(queries, keys, values, bias, step)
        outputs = []
        for start in range(0, T, size):
            first, end = max(0, start + 1 - self.reach), min(start + size, T)
            bias = self._bias(step, step.start + first, step.start + start, step.start + end, queries)
            outputs.append(self._mixed(queries[:, :, start:end], keys[:, first:end], values[:, first:end], bias, step))
        return torch.cat(outputs, dim=2)

    def _mixed(self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, step: DecodeStep) -> Tensor:
        (R, H, T, K), G = queries.shape, self.num_groups
        return step.attend(queries.reshape(R * G, -1, K), keys, values, bias, self.scale).view(R, H, T, -1)

    def _bias(self, step: DecodeStep, first: int, start: int, end: int, like: Tensor) -> Tensor | None:
        """Return the mask to add to scores of queries from slot `start` on: [R * G or 1, H // G * T, end - first].

        None means no mask. Heads of a group are stacked along the queries; a first dimension of 1 serves all groups.
        """
        whole = end - start == step.end - step.start
        if whole and self.reach in step.biases:
            return step.biases[self.reach]
        bias = step.hidden(first, start, end, self.reach, like)
        if bias is not None:
            (R, _, T, S), of_group = bias.shape, self.num_heads // self.num_groups
            G = 1 if R == 1 else self.num_groups
            bias = bias.expand(R, G * of_group, T, S).reshape(R * G, of_group * T, S)
        if whole:
            step.biases[self.reach] = bias
        return bias


class KeyValueCache(Cache):
    """Cache of keys and values of G groups, [2, B, G, slots, K], for multi-head (G = H) and grouped-query attention."""

    def __init__(self, attention: MultiHeadAttention | GroupedQueryAttention, products: Products, context_length: int):
        super().__init__(attention, products, context_length)
        grouped = isinstance(attention, GroupedQueryAttention)
        self.num_groups = len(attention.groups) if grouped else attention.num_heads
        self.head_size = attention.projection_layer.in_features // attention.num_heads
        self.queries_keys_values = products.of(*attention.projection_weights(range(attention.num_heads)))
        self.norms: Tensor | None = None  # the weights of the norms of queries and keys [H + G, 1, K]
        if attention.query_norm is not None and attention.key_norm is not None:
            of_queries, of_keys = (norm.weight.detach() for norm in (attention.query_norm, attention.key_norm))
            K, self.epsilon = self.head_size, attention.query_norm.eps
            self.norms = torch.cat([of_queries.expand(self.num_heads, 1, K), of_keys.expand(self.num_groups, 1, K)])

    def shape(self, num_rows: int, num_slots: int) -> tuple[int, ...]:
        """Return the shape of `slots`: [2 (keys and values), B, G, slots, K]."""
        return 2, num_rows, self.num_groups, num_slots, self.head_size

    def mix(self, x: Tensor, step: DecodeStep) -> Tensor:
        """Cache T new tokens of R sequences, x [R * T, D], and attend; return the heads' outputs [R * T, H * K]."""
        R, T = len(step.starts), step.end - step.start
        H, G, K = self.num_heads, self.num_groups, self.head_size
        projections = self.queries_keys_values(x.to(self.dtype)).to(x.dtype).view(R, T, H + 2 * G, K).transpose(1, 2)
        queries, keys, values = projections.split((H, G, G), dim=1)
        turning = projections[:, : H + G]
        if self.norms is not None:
            torch.mul(F.rms_norm(turning, (K,), eps=self.epsilon), self.norms, out=turning)
        if step.rotation is not None:
            turning.copy_(rotate(turning, step.rotation))
        step.write(self, self.slots.transpose(0, 1), projections[:, H:].view(R, 2, G, T, K))
        if slots := step.visible_slots(self):
            keys, values = self.slots[:, step.rows, :, slots].view(2, R * G, -1, K)
        else:
            keys, values = keys.flatten(0, 1), values.flatten(0, 1)
        return self._attend(queries, keys, values, step).transpose(1, 2).reshape(R * T, H * K)


class LatentCache(Cache):
    """Cache of latent attention: only each token's latent (C numbers) and rotary key (R numbers), [B, slots, C + R].

    No keys or values are computed from a cached latent c. As (W_UQ d) · (W_UK c) = (W_UKᵀ W_UQ d) · c, each query
    W_UQ d is mapped to the width of c, and all heads attend to the latents; W_UV maps a weighted sum of latents to the
    head's output. DeepSeek-AI 2024, section 2.1.2.
    """

    num_groups = 1

    def __init__(self, attention: LatentAttention, products: Products, context_length: int):
        super().__init__(attention, products, context_length)
        heads = attention.heads
        self.head_size, self.latent_size = heads[0].W_UK.weight.shape
        self.rotary_size = 0 if attention.W_KR is None else attention.W_KR.out_features
        weights = [part.weight for part in (attention.W_DKV, attention.W_KR) if part is not None]
        self.query_source = None if attention.W_DQ is None else products.of(attention.W_DQ.weight)
        self.queries = products.of(attention.query_weights(range(attention.num_heads)))
        self.to_keep = products.of(torch.cat(weights))
        self.absorbed_keys = products.batched([head.W_UK.weight for head in heads], transposed=True)
        self.absorbed_values = products.batched([head.W_UV.weight for head in heads])

    def shape(self, num_rows: int, num_slots: int) -> tuple[int, ...]:
        """Return the shape of `slots`: [B, slots, latent size + size of the rotary key]."""
        return num_rows, num_slots, self.latent_size + self.rotary_size

    def mix(self, x: Tensor, step: DecodeStep) -> Tensor:
        """Cache T new tokens of N sequences, x [N * T, D], and attend; return the heads' outputs [N * T, H * K]."""
        N, T, R = len(step.starts), step.end - step.start, self.rotary_size
        H, K, C = self.num_heads, self.head_size, self.latent_size
        lower = x.to(self.dtype)
        queries = self.queries(lower if self.query_source is None else self.query_source(lower))
        queries = queries.to(x.dtype).view(N, T, H, K + R)
        latents = self.to_keep(lower).to(x.dtype).view(N, T, C + R)
        absorbed = self.absorbed_keys(queries[..., :K].reshape(N * T, H, K).transpose(0, 1))  # [H, N * T, C]
        absorbed = absorbed.view(H, N, T, C).transpose(0, 1)
        if step.rotation is not None:
            turned = rotate(queries[..., K:].transpose(1, 2), step.rotation)
            absorbed = torch.cat([absorbed, turned], dim=-1)
            latents = torch.cat([latents[..., :C], rotate(latents[..., C:], step.rotation[:, :, 0])], dim=-1)
        step.write(self, self.slots, latents)
        keys = self.slots[step.rows, slots] if (slots := step.visible_slots(self)) else latents
        mixed = self._attend(absorbed, keys, keys[..., :C], step)
        outputs = self.absorbed_values(mixed.transpose(0, 1).reshape(H, N * T, C))
        return outputs.transpose(0, 1).reshape(N * T, H * K)


CACHES: Mapping[type[SelfAttention], Callable[[Any, Products, int], Cache]] = {
    MultiHeadAttention: KeyValueCache,
    GroupedQueryAttention: KeyValueCache,
    LatentAttention: LatentCache,
}


def make_cache(attention: SelfAttention, products: Products, context_length: int) -> Cache:
    """Make a KeyValueCache or LatentCache whose tokens see at most `context_length`; UsageError for other attention."""
    # the exact type, because a form derived from one of these may cache something else
    if type(attention) not in CACHES:
        raise unknown_form("sampling", type(attention).__name__)
    return CACHES[type(attention)](attention, products, context_length)
