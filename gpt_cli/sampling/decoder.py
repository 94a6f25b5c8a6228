"""Decode with a key-value cache: the model runs on each new token alone, not again on the tokens before it."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gpt_cli.common.machine.devices import to_device
from gpt_cli.config import ModelConfig
from gpt_cli.model import GPT
from gpt_cli.model.attention import concatenate_layers
from gpt_cli.model.block import Block
from gpt_cli.sampling.fast.c_decoder import CompiledToken, DecodeBlock, can_compile
from gpt_cli.sampling.fast.matmul import Products, copied
from gpt_cli.sampling.kv_cache import QUERIES_AT_ONCE, SCORES_AT_ONCE, Cache, DecodeStep, make_cache

DRAW_BYTES = 72  # of memory for each logit: a draw takes several float64 [V]


def row_bytes(config: ModelConfig, vocab_size: int, num_prompt_tokens: int, num_tokens: int) -> int:
    """Estimate the peak bytes that decoding takes for one sequence of `num_tokens` tokens, prompt included."""
    T = num_prompt_tokens
    scores = min(config.num_heads * T * min(T, QUERIES_AT_ONCE), max(SCORES_AT_ONCE, config.num_heads * T))
    heads, hidden = config.num_heads * config.query_size, (4 if config.gated else 2) * config.hidden_size
    of_prompt = 4 * (T * (2 * config.d_model + 6 * max(config.d_model, heads) + hidden) + 2 * scores)
    return cache_bytes(config, num_tokens, 4) + of_prompt + DRAW_BYTES * vocab_size


def cache_bytes(config: ModelConfig, num_tokens: int, size: int) -> int:
    """Return the bytes of the key-value cache for one sequence of `num_tokens` tokens, at `size` bytes a number."""
    C = config.context_length
    return config.cached_size * size * sum(min(2 * min(window or C, C), num_tokens) for window in config.windows)


class Decoder:
    """Decoder of a batch of sequences with key-value caches; it copies the model's weights, but may share 16-bit ones.

    Products with weights are computed in `dtype`, or, with `int8`, in bfloat16 with weights rounded to 8-bit integers.
    All else is computed in the dtype of the model's norms. `num_rows`, the expected number of sequences, decides which
    implementation computes the products. With `compiled`, C code decodes a single sequence, if `num_rows` is 1 and
    `can_compile(model)`: it reads weights in float32, bfloat16 or int8, and multiplies and sums in float32.

    Prompts of different lengths share a batch: shorter ones are padded in front, and padding gets attention weights of
    exactly zero. If a sequence exceeds context_length C, and positions are absolute (learned, sinusoidal), its last
    C // 2 tokens run again at positions from 0 on. With rotary positions, or none, each token attends to the C - 1
    tokens before it, whose keys and values are not computed again.
    """

    def __init__(
        self,
        model: GPT,
        dtype: torch.dtype = torch.float32,
        *,
        int8: bool = False,
        num_rows: int = 1,
        compiled: bool = False,
    ):
        self.config, self.where = model.config, model.where
        self.compiled = compiled and num_rows == 1 and can_compile(model)
        self._products = Products(dtype, int8=int8, num_rows=num_rows, compiled=self.compiled)
        self.dtype = self._products.dtype
        self.rotary = model.rotary
        self.token_embedding = copied(model.token_embedding.weight)
        self.device = self.token_embedding.device
        self.ngrams = None if model.ngram_embedding is None else _frozen(model.ngram_embedding)
        self.positions = None
        if model.position_embedding is not None:
            with torch.no_grad():
                self.positions = model.position_embedding(torch.arange(self.config.context_length, device=self.device))
        self.layers = [self._layer(block) for block in model.blocks]
        self.final_norm = _frozen(model.final_norm)
        self._plain = next(self.final_norm.parameters())
        self.plain_dtype = self._plain.dtype  # of everything but products with weights
        self.output_layer = self._products.of(model.output_weight)
        self._compiled = None
        if self.compiled:
            self._compiled = CompiledToken(self.config, self.layers, self.final_norm, self.output_layer)
        self.tokens: list[list[int]] = []  # of each row, from the start of its window
        self.starts: list[int] = []  # the slot where the window of each row starts, counted from the longest prompt's
        self.end = 0  # the next slot of all rows

    def cached_bytes(self) -> int:
        """Return the bytes of the caches that the last sequences have left; `prefill` reuses or replaces them."""
        return sum(layer.cache.slots.nbytes for layer in self.layers if layer.cache.num_slots)

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[Sequence[int]], num_new_tokens: int = 256) -> Tensor:
        """Start new sequences with prompts of 1 to context_length ids; return logits [B, V] of their next tokens.

        The caches have room for `num_new_tokens` tokens after each prompt.
        """
        assert all(0 < len(prompt) <= self.config.context_length for prompt in prompts)
        B, length = len(prompts), max(len(prompt) for prompt in prompts)
        for layer in self.layers:
            layer.cache.begin(B, length, num_new_tokens, self._plain)
        self.tokens = [list(prompt) for prompt in prompts]
        self.starts = [length - len(prompt) for prompt in prompts]
        self.end = length
        return self._run(length, list(range(B)))

    @torch.inference_mode()
    def decode(self, ids: Sequence[int]) -> Tensor:
        """Append one token to each sequence; return logits [B, V] of their next tokens."""
        self.make_room()
        self.end += 1
        self.append(ids)
        C = self.config.context_length
        full = [number for number, row in enumerate(self.tokens) if len(row) > C]
        if self.positions is None or not full:
            return self._run(1, list(range(len(ids))))
        return self._refill(full, ids)

    def append(self, ids: Sequence[int]) -> None:
        """Append one id to each sequence in `self.tokens`, without running the model."""
        for row, token in zip(self.tokens, ids, strict=True):
            row.append(token)

    def caches_by_reach(self) -> dict[int, Cache]:
        """Return {reach: a cache}; a token sees at most `reach` tokens, and caches of equal reach use equal slots."""
        return {layer.cache.reach: layer.cache for layer in self.layers}

    def make_room(self) -> None:
        """Make room in all caches for one more token of each sequence."""
        for layer in self.layers:
            layer.cache.make_room(self.end)

    def _refill(self, full: list[int], ids: Sequence[int]) -> Tensor:
        """Run a step in which the rows `full` have no position left; return logits [B, V] of the next tokens.

        The last context_length // 2 tokens of these rows run again, at positions from 0 on; other rows run one token.
        """
        half = max(1, self.config.context_length // 2)
        logits = torch.empty(len(ids), len(self.token_embedding), device=self.device, dtype=self.plain_dtype)
        for number in full:
            self.tokens[number] = self.tokens[number][-half:]
            self.starts[number] = self.end - half
        logits[to_device(torch.tensor(full), self.device)] = self._run(half, full)
        if others := [number for number in range(len(ids)) if number not in full]:
            logits[to_device(torch.tensor(others), self.device)] = self._run(1, others)
        return logits

    def is_full(self, num_more: int = 0) -> bool:
        """Return whether, after `num_more` more tokens, `decode` must rerun a sequence that has no position left."""
        return self.positions is not None and max(map(len, self.tokens)) + num_more >= self.config.context_length

    def recent_ids(self, T: int, rows: Sequence[int] | None = None) -> Tensor:
        """Return the last n + T ids of each of the R sequences `rows` (None: all): [R, n + T].

        n is the setting ngram_embedding, or 0 without n-grams. Shorter sequences are padded in front.
        """
        padding = [len(self.token_embedding) - 1] * ((self.config.ngram_embedding or 0) + T)
        rows = range(len(self.tokens)) if rows is None else rows
        return torch.tensor([(padding + self.tokens[row][-len(padding) :])[-len(padding) :] for row in rows])

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Embed the last T of the `ids` [R, n + T], which `recent_ids` returns, at `positions` [R, T] -> [R, T, D]."""
        x = self.token_embedding[ids[:, -positions.shape[1] :]].to(self.plain_dtype)
        if self.ngrams is not None:
            x = self.ngrams(x, ids)
        return x if self.positions is None else x + self.positions[positions]

    def _run(self, T: int, rows: list[int]) -> Tensor:
        """Run the last T tokens of R rows, and cache their keys and values; return logits [R, V] of the next tokens."""
        R, D = len(rows), self.config.d_model
        of_rows = slice(None) if len(self.tokens) == R else to_device(torch.tensor(rows), self.device)
        # positions on the CPU, with padding at 0, because their angles need float64, which some devices lack
        starts = [self.starts[row] for row in rows]
        positions = (torch.arange(self.end - T, self.end) - torch.tensor(starts)[:, None]).clamp(min=0)  # [R, T]
        rotation = None
        if self.rotary is not None:
            rotation = to_device(self.rotary.at(positions)[:, :, None].to(self.plain_dtype), self.device)
        if self.positions is not None:
            positions = to_device(positions, self.device)
        x = self.embed(to_device(self.recent_ids(T, rows), self.device), positions).view(R * T, D)
        step = DecodeStep(of_rows, starts, self.end - T, self.end, rotation)
        if self._compiled is not None and T == R == 1:
            return self._compiled(x, step)
        return self.compute(x, step)

    def compute(self, x: Tensor, step: DecodeStep) -> Tensor:
        """Run all blocks and the output layer: embeddings [R * T, D] of a step -> logits [R, V] of the next tokens."""
        for layer in self.layers:
            mixed = layer.cache.mix(layer.block.attention_input(x), step)
            attended = layer.cache.projection_layer(mixed.to(self.dtype))
            x, feed_forward_input = layer.block.feed_forward_input(x, attended)
            x = layer.block.after_feed_forward(x, self._feed_forward(layer, feed_forward_input))
        last = self.final_norm(x.view(len(step.starts), -1, x.shape[-1])[:, -1])
        return self.output_layer(last.to(self.dtype)).to(x.dtype)

    def _feed_forward(self, layer: DecodeBlock, x: Tensor) -> Tensor:
        expanded = layer.expand(x.to(self.dtype))
        if not self.config.gated:
            return layer.contract(layer.activation(expanded))
        gate, expanded = expanded.chunk(2, dim=-1)
        return layer.contract(layer.activation(gate) * expanded)

    @torch.no_grad()
    def _layer(self, block: Block) -> DecodeBlock:
        feed_forward = block.feed_forward
        gate, expand = feed_forward.gate, feed_forward.expand
        # not copied: the products hold their weights
        copies = {id(part): None for part in (block.attention, feed_forward)}
        return DecodeBlock(
            copy.deepcopy(block, copies).requires_grad_(False).eval(),
            make_cache(block.attention, self._products, self.config.context_length),
            self._products.of(*concatenate_layers([expand] if gate is None else [gate, expand])),
            feed_forward.activation,
            self._products.of(feed_forward.contract.weight, feed_forward.contract.bias),
        )


def _frozen(norm: nn.Module) -> nn.Module:
    return copy.deepcopy(norm).requires_grad_(False)
