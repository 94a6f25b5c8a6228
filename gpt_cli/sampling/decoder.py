"""Decoding with a cache of keys and values: each new token costs one token's work, not the whole window's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.model import GPT
from gpt_cli.model.block import Block
from gpt_cli.model.positions import rotate
from gpt_cli.sampling.quantise import to_int8

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class _Layer:
    """A block's weights in the form that decoding uses; products are [N, in] -> [N, out]."""

    norm_1: nn.Module
    queries_keys_values: Product
    projection_layer: Product
    norm_2: nn.Module
    expand: Product
    activation: Callable[[Tensor], Tensor]
    contract: Product


class Decoder:
    """Continues a batch of sequences token by token, from copies of a model's weights in `dtype`.

    Products with weights are in `dtype`, all else stays in the model's: the residual stream, norms, attention and its
    cache. Prompts of different length share a batch; the padding before the shorter ones is masked, its weights are
    exactly zero. With `int8` weights are rounded to whole numbers (quantise.py), and their products are in bfloat16.

    Past context_length C, absolute positions (learned, sinusoidal) refill the cache of a full row from its last
    C // 2 tokens, which begin at position 0 again; with rotary positions, or none, each token sees the C - 1 before
    it, whose keys and values stay as they were computed.
    """

    def __init__(self, model: GPT, dtype: torch.dtype = torch.float32, *, int8: bool = False):
        self.config = model.config
        self.dtype = torch.bfloat16 if int8 else dtype
        self.int8 = int8
        self.rotary = model.rotary
        self.token_embedding = model.token_embedding.weight.detach().clone()
        self.device = self.token_embedding.device
        self.ngrams = None if model.ngram_embedding is None else _frozen(model.ngram_embedding)
        self.positions = None
        if model.position_embedding is not None:
            with torch.no_grad():
                self.positions = model.position_embedding(torch.arange(self.config.context_length, device=self.device))
        self.layers = [self._layer(block) for block in model.blocks]
        self.final_norm = _frozen(model.final_norm)
        output = model.token_embedding if model.output_layer is None else model.output_layer
        self.output_layer = self._product(output.weight)
        # twice the window, so that old slots are dropped once in C tokens and not at each
        self.num_slots = 2 * self.config.context_length
        self.cache: list[Tensor] = []  # of each layer, keys and values [2, B, G, slots, K] of G key-value heads
        self.tokens: list[list[int]] = []  # of each row, since the beginning of its window
        self.begins: list[int] = []  # the slot where each row's window begins
        self.end = 0  # the next free slot, of all rows

    def cache_bytes(self, num_tokens: int) -> int:
        """What keys and values of one row take that has so many tokens, prompt included."""
        num_slots = min(self.num_slots, num_tokens)
        width = self.config.key_value_heads * self.config.head_size
        return 2 * self.config.num_blocks * width * self.token_embedding.element_size() * num_slots

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Begin new sequences, each of 1 to context_length ids; gives the logits [B, V] of their next tokens."""
        assert all(0 < len(prompt) <= self.config.context_length for prompt in prompts)
        B, length = len(prompts), max(len(prompt) for prompt in prompts)
        shape = (2, B, self.config.key_value_heads, self.num_slots, self.config.head_size)
        if not self.cache or self.cache[0].shape != shape:
            # not zeroed: a slot is written before it is read, and touching all of them costs 20 ms
            self.cache = [self.token_embedding.new_empty(shape) for _ in self.layers]
        self.tokens = [list(prompt) for prompt in prompts]
        self.begins = [length - len(prompt) for prompt in prompts]
        self.end = length
        return self._run(length, list(range(B)))

    @torch.inference_mode()
    def decode(self, ids: Sequence[int]) -> Tensor:
        """Add one token to each row; gives the logits [B, V] of the tokens after them."""
        if self.end == self.num_slots:
            self._drop_old_slots()
        self.end += 1
        for row, token in zip(self.tokens, ids, strict=True):
            row.append(token)
        C = self.config.context_length
        full = [number for number, row in enumerate(self.tokens) if len(row) > C]
        if self.positions is None or not full:
            return self._run(1, list(range(len(ids))))
        return self._refill(full, ids)

    def _refill(self, full: list[int], ids: Sequence[int]) -> Tensor:
        """Compute the rows whose window is full anew from its last half, and the others as ever."""
        half = max(1, self.config.context_length // 2)
        logits = torch.empty(len(ids), len(self.token_embedding), device=self.device, dtype=self.token_embedding.dtype)
        for number in full:
            self.tokens[number] = self.tokens[number][-half:]
            self.begins[number] = self.end - half
        logits[full] = self._run(half, full)
        if others := [number for number in range(len(ids)) if number not in full]:
            logits[others] = self._run(1, others)
        return logits

    def _drop_old_slots(self) -> None:
        """Move the last context_length slots to the front, which hold every row's window."""
        C = self.config.context_length
        dropped = self.end - C
        for cache in self.cache:
            cache[..., :C, :] = cache[..., dropped : self.end, :].clone()
        # a window that has rolled begins before the slots that are left
        self.begins = [begin - dropped for begin in self.begins]
        self.end = C

    def _embed(self, T: int, rows: list[int]) -> Tensor:
        """Embeddings [R, T, D] of the last T tokens of some rows, padding before those that have fewer."""
        num_before = 0 if self.ngrams is None else self.config.ngram_embedding or 0
        padding = [len(self.token_embedding) - 1] * (num_before + T)
        ids = torch.tensor(
            [(padding + self.tokens[row][-len(padding) :])[-len(padding) :] for row in rows], device=self.device
        )
        x = self.token_embedding[ids[:, num_before:]]
        return x if self.ngrams is None else self.ngrams(x, ids, num_before)

    def _run(self, T: int, rows: list[int]) -> Tensor:
        """The last T tokens of some rows into the last T slots; gives the logits [R, V] after the last one."""
        R = len(rows)
        D, H, G, K = self.config.d_model, self.config.num_heads, self.config.key_value_heads, self.config.head_size
        begin = self.end - T
        # no slot before the first is seen
        first = max(0, begin + 1 - self.config.context_length)
        of_rows = slice(None) if len(self.tokens) == R else torch.tensor(rows, device=self.device)
        begins = torch.tensor([self.begins[row] for row in rows], device=self.device)[:, None]
        slots = torch.arange(begin, self.end, device=self.device)
        positions = (slots - begins).clamp(min=0)  # [R, T]; padding stands before position 0
        x = self._embed(T, rows).view(R * T, D)
        if self.positions is not None:
            x = x + self.positions[positions].view(R * T, D)
        rotation = None if self.rotary is None else self.rotary.at(positions)[:, :, None].to(x.dtype)  # [2, R, 1, T, K]
        mask = None
        if T > 1 or any(self.begins[row] > first for row in rows):
            mask = self._mask(slots, begins, first).expand(R, H, T, self.end - first).reshape(R * G, H // G * T, -1)
        for layer, cache in zip(self.layers, self.cache, strict=True):
            normed = layer.norm_1(x) if self.config.norm_position == "pre" else x
            projections = layer.queries_keys_values(normed.to(self.dtype)).to(x.dtype)
            turning, values = projections.view(R, T, H + 2 * G, K).transpose(1, 2).split((H + G, G), dim=1)
            if rotation is not None:
                turning = rotate(turning, rotation)
            queries, keys = turning.split((H, G), dim=1)
            cache[0][of_rows, :, begin : self.end] = keys
            cache[1][of_rows, :, begin : self.end] = values
            keys, values = cache[:, of_rows, :, first : self.end].view(2, R * G, -1, K)
            # the heads of a group look at the same keys: their queries stand below each other
            mixed = self._mix(queries.reshape(R * G, H // G * T, K), keys, values, mask)
            x = self._after_attention(layer, x, mixed.view(R, H, T, K).transpose(1, 2).reshape(R * T, D))
        return self.output_layer(self.final_norm(x.view(R, T, D)[:, -1]).to(self.dtype)).to(x.dtype)

    def _mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attention of N queries a group: [R * G, N, K], twice [R * G, S, K], [R * G, N, S] -> [R * G, N, K]."""
        scale = self.config.head_size**-0.5
        if mask is None:
            scores = torch.bmm(queries * scale, keys.transpose(1, 2))
        else:
            scores = torch.baddbmm(mask, queries, keys.transpose(1, 2), alpha=scale)
        return torch.bmm(scores.softmax(dim=-1), values)

    def _after_attention(self, layer: _Layer, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + layer.projection_layer(mixed.to(self.dtype))
        if self.config.norm_position == "pre":
            return x + self._feed_forward(layer, layer.norm_2(x))
        x = layer.norm_1(x)
        return layer.norm_2(x + self._feed_forward(layer, x))

    def _feed_forward(self, layer: _Layer, x: Tensor) -> Tensor:
        return layer.contract(layer.activation(layer.expand(x.to(self.dtype))))

    def _mask(self, slots: Tensor, begins: Tensor, first: int) -> Tensor:
        """-inf where a query may not look, 0 elsewhere: [R, 1, T, end - first].

        Padding looks at itself, since softmax needs something to look at.
        """
        seen = torch.arange(first, self.end, device=self.device)
        query = slots[:, None]
        oldest = torch.maximum(begins[:, :, None], query - self.config.context_length + 1)  # [R, T, 1]
        hidden = (seen > query) | ((seen < oldest) & (seen != query))
        nothing = torch.zeros(hidden.shape, dtype=self.token_embedding.dtype, device=self.device)
        return nothing.masked_fill(hidden, -torch.inf)[:, None]

    def _layer(self, block: Block) -> _Layer:
        attention, feed_forward = block.attention, block.feed_forward
        with torch.no_grad():
            projections = self._product(attention.projection_weights())
        return _Layer(
            _frozen(block.norm_1),
            projections,
            self._product(attention.projection_layer.weight, attention.projection_layer.bias),
            _frozen(block.norm_2),
            self._product(feed_forward.expand.weight, feed_forward.expand.bias),
            feed_forward.activation,
            self._product(feed_forward.contract.weight, feed_forward.contract.bias),
        )

    def _product(self, weight: Tensor, bias: Tensor | None = None) -> Product:
        """x [N, in] -> [N, out] with copies of a weight [out, in] and a bias."""
        if self.int8:
            return _int8_product(weight.detach(), bias)
        copied = weight.detach().to(self.dtype, copy=True)
        added = None if bias is None else bias.detach().to(self.dtype, copy=True)
        if _packs(copied):
            # 1.6 to 2.6 times as fast as F.linear, which for one row in float32 uses one core alone (NOTES.md)
            packed = torch.ops.mkldnn._reorder_linear_weight(copied)
            return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, added, "none", [], "")
        return lambda x: F.linear(x, copied, added)


def _packs(weight: Tensor) -> bool:
    """Whether oneDNN, which comes with torch for x86 processors, can store this weight in the order it reads."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32


def _int8_product(weight: Tensor, bias: Tensor | None) -> Product:
    numbers, scales = to_int8(weight)
    added = None if bias is None else bias.detach().to(torch.bfloat16)

    def product(x: Tensor) -> Tensor:
        found = torch.ops.aten._weight_int8pack_mm(x.contiguous(), numbers, scales)
        return found if added is None else found + added

    return product


def _frozen(norm: nn.Module) -> nn.Module:
    return copy.deepcopy(norm).requires_grad_(False)
