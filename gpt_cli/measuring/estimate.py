"""Parameters, operations and memory of a model, counted before it is trained."""

from __future__ import annotations

from dataclasses import dataclass

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
    the forward one; sampling holds the weights and keys and values of context_length tokens.
    """
    parts = parameters_by_part(config, vocab_size)
    parameters = sum(parts.values())
    # matrices only: a bias is added, not multiplied
    shared = config.key_value_heads * config.head_size  # width of all keys, and of all values
    products = config.num_blocks * config.d_model * (10 * config.d_model + 2 * shared) + config.d_model * vocab_size
    attention = 2 * config.num_blocks * config.context_length * config.d_model
    forward = 2 * (products + attention)
    size = 2 if dtype == "bfloat16" else 4
    cache = 2 * config.num_blocks * shared * 4
    return Estimate(
        parts,
        forward,
        3 * forward,
        16 * parameters + _activation_bytes(config, vocab_size, micro_batch_size, size),
        4 * parameters + cache * config.context_length,
        cache,
    )


def parameters_by_part(config: ModelConfig, vocab_size: int) -> dict[str, int]:
    """The number of parameters of each part of the model; together all of them."""
    with torch.device("meta"):  # laid out without memory
        model = GPT(config, vocab_size)
    counts = dict.fromkeys(_PARTS.values(), 0)
    for name, parameter in model.named_parameters():
        counts[next(part for key, part in _PARTS.items() if key in name)] += parameter.numel()
    return counts


def _activation_bytes(config: ModelConfig, vocab_size: int, num_sequences: int, size: int) -> int:
    """What the forward pass keeps for the backward one; `size` is that of a product's result in bytes."""
    width, length = config.d_model, config.context_length
    dropping = config.dropout > 0
    # per token: residual sums and norms in float32, results of products in `size`
    per_token = width * (4 * 4 + 16 * size + (2 * size if dropping else 0))
    # per pair of tokens and head: weights, and with dropout the mask and the product of both
    per_pair = config.num_heads * size * (3 if dropping else 1)
    logits = vocab_size * (size + 2 * 4)
    return num_sequences * length * (config.num_blocks * (per_token + per_pair * length) + logits)
