"""Estimate the parameters, operations and memory of a model from its config, before it is trained."""

from dataclasses import dataclass
from typing import get_args

import torch

from gpt_cli.config import ModelConfig
from gpt_cli.model import GPT

# substring of a parameter's name -> part of the model; the first substring that the name contains decides
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
class CostEstimate:
    """Estimated parameters, operations and memory of a model; memory is that of one process, on its device."""

    parameters_by_part: dict[str, int]
    forward_flops_per_token: int
    sampling_flops_per_token: int
    training_flops_per_token: int
    training_bytes: int
    sampling_bytes: int
    cache_bytes_per_token: int
    sent_bytes_per_step: int  # from a process to the others, which send it as many
    gathered_bytes: int  # AdamW's moments in main memory of the first of several processes, while it saves
    num_trained: int  # weights, or elements of low-rank factors, that the optimizer changes

    @property
    def parameters(self) -> int:
        return sum(self.parameters_by_part.values())


def estimate(
    config: ModelConfig,
    vocab_size: int,
    *,
    micro_batch_size: int,
    dtype: str,
    num_micro_batches: int = 1,
    device: str = "cpu",
    num_trained: int | None = None,
    num_ranks: int = 1,
    averages: bool = False,
) -> CostEstimate:
    """Estimate the costs of training with `num_micro_batches` of `micro_batch_size` sequences a step, and of sampling.

    A product of [m, k] and [k, n] counts as 2mkn operations, the backward pass as twice the forward pass. Training
    needs memory for float32 weights (twice if training `averages` weights), gradients and their partial sums, AdamW's
    two moments, and activations. Only `num_trained` parameters (None: all) have gradients and moments. With `num_ranks`
    processes, the memory is that of one process, which stores the moments of its share of the parameters. Sampling
    needs memory for weights and a key-value cache of context_length tokens, or of twice a block's attention window.
    """
    model = _laid_out(config, vocab_size)
    parts = _by_part(model, config.num_blocks)
    parameters = sum(parts.values())
    C = config.context_length
    remembered = sum(min(window or C, C) for window in config.windows)
    slots = sum(min(2 * (window or C), C) for window in config.windows)  # a cache drops half of them at once
    keys_per_token = config.num_heads * remembered  # keys of a token in all heads
    # matrices only: a bias is added, not multiplied
    matrices = sum(matrix.numel() for matrix in model.blocks[0].parameters() if matrix.dim() == 2)
    products = config.num_blocks * matrices + config.d_model * vocab_size
    forward = 2 * (products + keys_per_token * (config.query_size + config.value_size))
    # with a cache, the queries of latent attention attend to the latents themselves
    latent = config.attention == "latent"
    cached = config.cached_size + config.key_value_latent if latent else config.query_size + config.value_size
    cache = config.cached_size * 4
    trained = parameters if num_trained is None else num_trained
    # an owner has whole parameters, one of which may be most of the model
    owned = max(-(-parameters // num_ranks), *(parameter.numel() for parameter in model.parameters()))
    gradients = 1 + gradients_waiting(num_micro_batches // num_ranks)
    activations = _activation_bytes(config, parameters, vocab_size, micro_batch_size, dtype, device)
    # bytes per parameter while ranks sum gradients: 4 for all, 2 for a received half, 1 for a quarter
    summing = (0, 6, 7)[min(num_ranks, 4) // 2] * trained
    return CostEstimate(
        parts,
        forward,
        2 * (products + keys_per_token * cached),
        3 * forward,
        4 * ((1 + averages) * parameters + 2 * min(owned, trained))
        + max(4 * gradients * trained + activations, summing),
        4 * parameters + cache * slots,
        cache * config.num_blocks,
        # gradients to their owners, and new weights from them
        4 * 2 * trained * (num_ranks - 1) // num_ranks,
        (8 + 4 * averages) * parameters if num_ranks > 1 else 0,
        trained,
    )


def gradients_waiting(num_micro_batches: int) -> int:
    """Return how many partial sums of gradients wait in memory at most: 1 for 4 micro-batches, 2 for 8.

    `tree_sum` adds the gradients of a step's micro-batches in halves; the sum of the first half waits for the second.
    """
    levels = 0
    while num_micro_batches > 2 and num_micro_batches % 2 == 0:
        num_micro_batches //= 2
        levels += 1
    return levels


def cache_bytes_by_attention(config: ModelConfig) -> dict[str, int]:
    """Return {form of attention: the KV cache's bytes per token}; forms not used by the config have default sizes."""
    size_keys = ("num_key_value_heads", "latent_size", "query_latent_size", "rotary_size")
    forms = get_args(ModelConfig.model_fields["attention"].annotation)
    others = {form: config.changed(attention=form, **dict.fromkeys(size_keys)) for form in forms}
    return {
        form: sizes.num_blocks * sizes.cached_size * 4 for form, sizes in (others | {config.attention: config}).items()
    }


def parameters_by_part(config: ModelConfig, vocab_size: int) -> dict[str, int]:
    """Return the number of parameters of each part of the model, such as attention; the numbers add up to the total."""
    return _by_part(_laid_out(config, vocab_size), config.num_blocks)


def _by_part(model: GPT, num_blocks: int) -> dict[str, int]:
    counts = dict.fromkeys(_PARTS.values(), 0)
    for name, parameter in model.named_parameters():
        times = num_blocks if name.startswith("blocks.") else 1
        counts[next(part for key, part in _PARTS.items() if key in name)] += times * parameter.numel()
    return {part: count for part, count in counts.items() if count}


def _laid_out(config: ModelConfig, vocab_size: int) -> GPT:
    """Build the model on the meta device, without memory for weights, and with one block, as all blocks are alike."""
    with torch.device("meta"):
        return GPT(config.changed(num_blocks=1, attention_window=None), vocab_size)


def _activation_bytes(
    config: ModelConfig, parameters: int, vocab_size: int, num_sequences: int, dtype: str, device: str
) -> int:
    """Estimate the bytes of activations (saved for the backward pass or temporary) and of bfloat16 weight copies."""
    size = 2 if dtype == "bfloat16" else 4  # of an entry of a product's result
    casts = size * parameters if size < 4 else 0  # of the weights
    width, length = config.d_model, config.context_length
    # queries, keys and values of all heads, and the latents behind them
    heads = config.num_heads * (2 * config.query_size + config.value_size)
    if config.attention == "latent":
        heads += config.cached_size + (config.query_latent_size or 0)
    if config.qk_norm:
        heads += 2 * config.num_heads * config.query_size
    dropping = config.dropout > 0
    # per token: residual sums and norms in float32, results of products in `size`
    mixed = config.num_heads * config.value_size
    products = 4 * width + mixed + heads + (4 if config.gated else 2) * config.hidden_size
    per_token = width * (4 * 4 + (2 * size if dropping else 0)) + size * products
    # per pair of tokens and head: weights, and with dropout the mask and the product of both
    per_pair = config.num_heads * size * (3 if dropping else 1)
    # while the attention of one block is computed; on CPUs also the holes between large allocations, which malloc
    # cannot reuse: at most 3.4 numbers, with dropout 5.3, as measured at 1,024 and 2,048 tokens (note 0053)
    holes = 0 if length < 1024 or device != "cpu" else 5.5 if dropping else 3.5
    passing = int((3 + holes) * config.num_heads * size * length)
    logits = vocab_size * (size + 2 * 4)
    return casts + num_sequences * length * (config.num_blocks * (per_token + per_pair * length) + passing + logits)
