"""Attention of one layer in decoding: what it keeps of earlier tokens, and how new tokens look at them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpt_cli.config.model import unknown_form
from gpt_cli.machine.devices import send
from gpt_cli.model import GroupedQueryAttention, LatentAttention, MultiHeadAttention
from gpt_cli.model.attention import SelfAttention, attend
from gpt_cli.model.positions import rotate
from gpt_cli.sampling.products import Products

# scores of a row, in all heads, that are computed at once: 64 MiB in float32; longer prompts go through them in parts
SCORES_AT_ONCE = 2**24
_FEWEST_QUERIES = 64  # of a part
_FEWEST_SLOTS = 1024  # that a row gets, where its layer can use so many


@dataclass(frozen=True)
class Step:
    """The last T tokens of R rows, in slots `start` to `end`, counted from the first token of the longest prompt.

    `starts` [R, 1], on the host, are the slots where the windows of the rows start; padding is before them. Several
    tokens see no earlier slots. `rotation` [2, R, 1, T, size] is that of rotary positions.
    """

    rows: slice | Tensor
    starts: Tensor
    start: int
    end: int
    rotation: Tensor | None
    biases: dict[int, Tensor | None] = field(default_factory=dict)  # of layers with the same reach

    def hidden(self, first: int, start: int, end: int, reach: int, like: Tensor) -> Tensor | None:
        """-inf where the queries in slots `start` to `end` may not look, 0 elsewhere: [R, 1, end - start, end - first].

        The keys are in slots `first` to `end`, and a query sees `reach` of them. None lets each look everywhere.
        Padding looks at itself, since softmax needs at least one key.
        """
        if end - start == 1 and bool((self.starts <= first).all()):
            return None
        seen = torch.arange(first, end, device=like.device)
        query = torch.arange(start, end, device=like.device)[:, None]
        oldest = torch.maximum(send(self.starts, like.device)[:, :, None], query - reach + 1)  # [R, T, 1]
        hidden = (seen > query) | ((seen < oldest) & (seen != query))
        return like.new_zeros(hidden.shape).masked_fill(hidden, -torch.inf)[:, None]


class Cache(ABC):
    """The attention of a layer in decoding: copies of its weights, and slots for the tokens of B rows.

    A token sees `reach` tokens, itself included. The slots are those from `base` on. They double until they are twice
    the reach, so that old ones are dropped once in `reach` tokens and not for each token.
    """

    num_groups: int  # of heads that look at the same keys

    def __init__(self, attention: SelfAttention, products: Products, context_length: int):
        self.distance_bias = attention.distance_bias
        self.num_heads = attention.num_heads
        self.scale = attention.scale
        self.reach = min(attention.window or context_length, context_length)
        self.dtype = products.dtype
        self.projection_layer = products.of(attention.projection_layer.weight, attention.projection_layer.bias)
        self.base = self.num_rows = self.num_slots = 0
        self.kept: Tensor  # slots are its last dimension but one

    @abstractmethod
    def shape(self, num_rows: int, num_slots: int) -> tuple[int, ...]:
        """The shape of `kept`."""

    @abstractmethod
    def mix(self, x: Tensor, step: Step) -> Tensor:
        """Keep the tokens whose inputs are x [R * T, D]; returns the outputs of their heads [R * T, H * K]."""

    def begin(self, num_rows: int, length: int, like: Tensor) -> None:
        """Forget all tokens, and make room for new rows of `length` tokens."""
        self.base = max(0, length - self.reach)
        num_slots = min(2 * self.reach, max(length - self.base + 1, _FEWEST_SLOTS))
        if num_rows != self.num_rows or num_slots > self.num_slots:
            # not zeroed: a slot is written before it is read, and touching all of them costs 20 ms
            self.kept = like.new_empty(self.shape(num_rows, num_slots))
            self.num_rows, self.num_slots = num_rows, num_slots

    def make_room(self, end: int) -> None:
        """Make room for a token in slot `end`, which may drop those that it does not see."""
        if end - self.base < self.num_slots:
            return
        earlier, kept, most = self.num_slots, self.kept, 2 * self.reach
        if earlier < most:
            self.num_slots = min(2 * earlier, most)
            self.kept = kept.new_empty(self.shape(self.num_rows, self.num_slots))
            self.kept[..., :earlier, :] = kept
        else:
            kept[..., : self.reach, :] = kept[..., self.reach :, :].clone()
            self.base += self.reach

    def _keep(self, kept: Tensor, found: Tensor, step: Step) -> Tensor:
        """Put what tokens leave [R, ..., T, size] into slots of `kept` [B, ..., slots, size]; returns what they see."""
        own, end = found[..., -self.reach :, :], step.end - self.base
        kept[step.rows, ..., end - own.shape[-2] : end, :] = own
        if found.shape[-2] > 1:
            return found
        return kept[step.rows, ..., max(0, end - self.reach) : end, :]

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, step: Step) -> Tensor:
        """[R, H, T, K], [R * G, S, K], [R * G, S, K'] -> mixed values [R, H, T, K'].

        Long prompts go through a part of the queries at a time, each with the keys that it sees.
        """
        (R, H, T, _), G, S = queries.shape, self.num_groups, keys.shape[1]
        size = max(1, min(SCORES_AT_ONCE // (H * S), max(self.reach, _FEWEST_QUERIES)))
        outputs = []
        for start in range(0, T, size):
            end = min(start + size, T)
            # there are as many keys as queries, or the one query sees all of them
            first, last = max(0, start + 1 - self.reach), S - T + end
            part = queries[:, :, start:end].reshape(R * G, H // G * (end - start), -1)
            bias = self._bias(step, step.end - S + first, step.start + start, step.start + end, queries)
            mixed, _ = attend(part, keys[:, first:last], values[:, first:last], bias, self.scale)
            outputs.append(mixed.view(R, H, end - start, -1))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)

    def _bias(self, step: Step, first: int, start: int, end: int, like: Tensor) -> Tensor | None:
        """What is added to the scores of queries in slots `start` to `end`: [R * G, H // G * T, end - first].

        None adds nothing. Heads of a group are one below another.
        """
        own = self.distance_bias(end - start, end - first, range(self.num_heads), like)
        whole = own is None and end - start == step.end - step.start
        if whole and self.reach in step.biases:
            return step.biases[self.reach]
        bias = step.hidden(first, start, end, self.reach, like)
        if own is not None:
            bias = own.expand(len(like), -1, -1, -1) if bias is None else bias + own
        if bias is not None:
            (R, _, T, S), H, G = bias.shape, self.num_heads, self.num_groups
            bias = bias.expand(R, H, T, S).reshape(R * G, H // G * T, S)
        if whole:
            step.biases[self.reach] = bias
        return bias


class KeyValueCache(Cache):
    """Keeps keys and values of G heads [2, B, G, slots, K], for multi-head (G = H) and grouped-query attention."""

    def __init__(self, attention: MultiHeadAttention | GroupedQueryAttention, products: Products, context_length: int):
        super().__init__(attention, products, context_length)
        grouped = isinstance(attention, GroupedQueryAttention)
        self.num_groups = len(attention.groups) if grouped else attention.num_heads
        self.head_size = attention.projection_layer.in_features // attention.num_heads
        self.queries_keys_values = products.of(*attention.projection_weights(range(attention.num_heads)))
        self.norms: Tensor | None = None  # the weights of those of queries and keys [H + G, 1, K]
        if attention.query_norm is not None and attention.key_norm is not None:
            of_heads = [attention.query_norm.weight] * self.num_heads + [attention.key_norm.weight] * self.num_groups
            self.norms, self.epsilon = torch.stack(of_heads)[:, None], attention.query_norm.eps

    def shape(self, num_rows: int, num_slots: int) -> tuple[int, ...]:
        """The shape of `kept`."""
        return 2, num_rows, self.num_groups, num_slots, self.head_size

    def mix(self, x: Tensor, step: Step) -> Tensor:
        """Keep the tokens whose inputs are x [R * T, D]; returns the outputs of their heads [R * T, H * K]."""
        R, T = len(step.starts), step.end - step.start
        H, G, K = self.num_heads, self.num_groups, self.head_size
        projections = self.queries_keys_values(x.to(self.dtype)).to(x.dtype).view(R, T, H + 2 * G, K).transpose(1, 2)
        turning, values = projections.split((H + G, G), dim=1)
        if self.norms is not None:
            turning = F.rms_norm(turning, (K,), eps=self.epsilon) * self.norms
        if step.rotation is not None:
            turning = rotate(turning, step.rotation)
        queries, keys = turning.split((H, G), dim=1)
        keys, values = (self._keep(*pair, step).flatten(0, 1) for pair in zip(self.kept, (keys, values), strict=True))
        return self._attend(queries, keys, values, step).transpose(1, 2).reshape(R * T, H * K)


class LatentCache(Cache):
    """Keeps only the latent and the rotary key: [B, slots, C + R].

    W_UK and W_UV never touch what the cache keeps. (W_UQ q) · (W_UK c) = (W_UKᵀ W_UQ q) · c, so each query gets the
    width of the latent and all heads look at the latents themselves; W_UV turns their mix into the output of the head.
    DeepSeek-AI 2024, section 2.1.2.
    """

    num_groups = 1

    def __init__(self, attention: LatentAttention, products: Products, context_length: int):
        super().__init__(attention, products, context_length)
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

    def mix(self, x: Tensor, step: Step) -> Tensor:
        """Keep the tokens whose inputs are x [R * T, D]; returns the outputs of their heads [R * T, H * K]."""
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
        keys = self._keep(self.kept, latents, step)
        mixed = self._attend(absorbed, keys, keys[..., :C], step)
        outputs = self.absorbed_values(mixed.transpose(0, 1).reshape(H, N * T, C))
        return outputs.transpose(0, 1).reshape(N * T, H * K)


CACHES: Mapping[type[SelfAttention], Callable[[Any, Products, int], Cache]] = {
    MultiHeadAttention: KeyValueCache,
    GroupedQueryAttention: KeyValueCache,
    LatentAttention: LatentCache,
}


def make_cache(attention: SelfAttention, products: Products, context_length: int) -> Cache:
    """The cache for the form of attention that a layer has, whose tokens see at most context_length tokens."""
    # not that of a form from which this one is derived, which may keep something else
    if type(attention) not in CACHES:
        raise unknown_form("sampling", type(attention).__name__)
    return CACHES[type(attention)](attention, products, context_length)
