"""Parameters, operations and memory of a model, counted before it is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch

from gpt_cli.config import ModelConfig
from gpt_cli.model import GPT

# rooms of the state dict, in the order of the forward pass; the first that a name contains counts it
_PARTS = {
    "token_embedding": "token embedding",
    "ngram_embedding": "n-gram embedding",
    "position_embedding": "position embedding",
    "attention": "attention",
    "feed_forward": "feed-forward",
    "norm": "norms",
    "output_layer": "output layer",
}


@dataclass(frozen=True)
class Estimate:
    """The costs of a model; bytes are of main or device memory."""

    parameters_by_part: dict[str, int]
    forward_flops_per_token: int
    sampling_flops_per_token: int
    training_flops_per_token: int
    training_bytes: int
    sampling_bytes: int
    cache_bytes_per_token: int

    @property
    def parameters(self) -> int:
        return sum(self.parameters_by_part.values())


def estimate(config: ModelConfig, vocab_size: int, *, micro_batch_size: int, dtype: str) -> Estimate:
    """What a model costs to train in micro-batches of some sequences, and to sample from.

    A product of [m, k] and [k, n] counts 2mkn operations; the backward pass counts twice the forward one.
    Training holds weights, gradients and two moments (those of AdamW) in float32, and what the backward pass needs of
    the forward one; sampling holds the weights and the cache of context_length tokens.
    """
    model = _laid_out(config, vocab_size)
    parts = _by_part(model, config.num_blocks)
    parameters = sum(parts.values())
    seen = config.num_blocks * config.num_heads * config.context_length  # by a token, in all heads
    # matrices only: a bias is added, not multiplied
    matrices = sum(matrix.numel() for matrix in model.blocks[0].parameters() if matrix.dim() == 2)
    products = config.num_blocks * matrices + config.d_model * vocab_size
    forward = 2 * (products + seen * (config.query_size + config.head_size))
    # with a cache, queries of latent attention look at the latents themselves
    latent = config.attention == "latent"
    cached = config.cached_size + config.key_value_latent if latent else config.query_size + config.head_size
    size = 2 if dtype == "bfloat16" else 4
    cache = config.num_blocks * config.cached_size * 4
    return Estimate(
        parts,
        forward,
        2 * (products + seen * cached),
        3 * forward,
        16 * parameters + _activation_bytes(config, vocab_size, micro_batch_size, size),
        4 * parameters + cache * config.context_length,
        cache,
    )


def cache_bytes_by_attention(config: ModelConfig) -> dict[str, int]:
    """What a cache keeps of a token with each form of attention; those that are not the config's in their own sizes."""
    own = ("num_key_value_heads", "latent_size", "query_latent_size", "rotary_size")
    forms = get_args(ModelConfig.model_fields["attention"].annotation)
    others = {form: config.model_copy(update={"attention": form} | dict.fromkeys(own)) for form in forms}
    return {
        form: sizes.num_blocks * sizes.cached_size * 4 for form, sizes in (others | {config.attention: config}).items()
    }


def parameters_by_part(config: ModelConfig, vocab_size: int) -> dict[str, int]:
    """The number of parameters of each part of the model; together all of them."""
    return _by_part(_laid_out(config, vocab_size), config.num_blocks)


def _by_part(model: GPT, num_blocks: int) -> dict[str, int]:
    counts = dict.fromkeys(_PARTS.values(), 0)
    for name, parameter in model.named_parameters():
        times = num_blocks if name.startswith("blocks.") else 1
        counts[next(part for key, part in _PARTS.items() if key in name)] += times * parameter.numel()
    return counts


def _laid_out(config: ModelConfig, vocab_size: int) -> GPT:
    """A model of one block, since all are equal, without memory."""
    with torch.device("meta"):
        return GPT(config.model_copy(update={"num_blocks": 1}), vocab_size)


def _activation_bytes(config: ModelConfig, vocab_size: int, num_sequences: int, size: int) -> int:
    """What the forward pass keeps for the backward one; `size` is that of a product's result in bytes."""
    width, length = config.d_model, config.context_length
    # queries, keys and values of all heads, and what latent attention makes them from
    heads = config.num_heads * (2 * config.query_size + config.head_size)
    if config.attention == "latent":
        heads += config.cached_size + (config.query_latent_size or 0)
    dropping = config.dropout > 0
    # per token: residual sums and norms in float32, results of products in `size`
    products = 5 * width + heads + 2 * config.hidden_size
    per_token = width * (4 * 4 + (2 * size if dropping else 0)) + size * products
    # per pair of tokens and head: weights, and with dropout the mask and the product of both
    per_pair = config.num_heads * size * (3 if dropping else 1)
    logits = vocab_size * (size + 2 * 4)
    return num_sequences * length * (config.num_blocks * (per_token + per_pair * length) + logits)
