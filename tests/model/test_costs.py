from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gpt_cli.config import ModelConfig
from gpt_cli.model import GPT
from gpt_cli.model.costs import cache_bytes_by_attention, estimate, parameters_by_part

SIZES = ModelConfig(context_length=16, d_model=32, num_heads=4, num_blocks=3)


def test_the_parts_that_a_model_has_add_up_to_it_and_can_be_worked_out() -> None:
    parts = parameters_by_part(SIZES, 100)
    assert parts == {
        "token embedding": 100 * 32,
        "position embedding": 16 * 32,
        "attention": 3 * (4 * 32 * 32 + 32),
        "feed-forward": 3 * (8 * 32 * 32 + 5 * 32),
        "norms": 7 * 2 * 32,
        "output layer": 100 * 32,
    }
    more = SIZES.changed(ngram_embedding=3, ngram_rows=20_000)
    assert parameters_by_part(more, 100) == parts | {"n-gram embedding": (10_000 + 20_000) * 32}
    few = parameters_by_part(SIZES.changed(positions="rope", tie_embeddings=True), 100)
    assert few == {part: count for part, count in parts.items() if part not in ("position embedding", "output layer")}
    assert sum(parts.values()) == sum(parameter.numel() for parameter in GPT(SIZES, 100).parameters())


@pytest.mark.parametrize(
    "update",
    [
        {},
        {"tie_embeddings": True},
        {"attention": "grouped_query"},
        {"attention": "grouped_query", "num_key_value_heads": 2},
        {"attention": "latent"},
        {"attention": "latent", "positions": "rope", "query_latent_size": 12, "feed_forward_size": 40},
    ],
)
def test_operations_are_those_that_torch_counts(update: dict[str, object]) -> None:
    sizes = SIZES.changed(**update)
    model, ids = GPT(sizes, 100), torch.zeros(1, 16, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model(ids)
    costs = estimate(sizes, 100, micro_batch_size=1, dtype="float32")
    assert costs.forward_flops_per_token * 16 == counter.get_total_flops()
    assert costs.training_flops_per_token == 3 * costs.forward_flops_per_token


def test_memory_holds_four_copies_of_the_weights_and_the_cache_keys_and_values() -> None:
    small, large = (estimate(SIZES, 100, micro_batch_size=size, dtype="float32") for size in (1, 3))
    activations = (large.training_bytes - small.training_bytes) / 2
    assert small.training_bytes - activations == 16 * small.parameters
    assert small.cache_bytes_per_token == 2 * 3 * 32 * 4
    grouped = estimate(SIZES.changed(attention="grouped_query"), 100, micro_batch_size=1, dtype="float32")
    assert grouped.cache_bytes_per_token == small.cache_bytes_per_token / 4


def test_a_latent_cache_at_the_default_size_is_at_most_a_quarter() -> None:
    default = ModelConfig(positions="rope")
    found = cache_bytes_by_attention(default)
    # of 12 blocks in float32: keys and values of 512 numbers; of 2 heads of 64; a latent of 128 and 32 that turn
    assert found == {"multi_head": 12 * 4 * 1024, "grouped_query": 12 * 4 * 256, "latent": 12 * 4 * 160}
    assert cache_bytes_by_attention(ModelConfig())["latent"] == 12 * 4 * 128
    wide = default.changed(attention="latent", latent_size=500)
    assert cache_bytes_by_attention(wide) == found | {"latent": 12 * 4 * 532}


def test_sampling_with_a_latent_cache_looks_at_latents() -> None:
    costs = estimate(SIZES.changed(attention="latent"), 100, micro_batch_size=1, dtype="float32")
    # 16 tokens seen by 4 heads in 3 blocks: latents of 8 numbers twice, where keys and values have 8 each
    assert costs.sampling_flops_per_token == costs.forward_flops_per_token
    wide = SIZES.changed(attention="latent", latent_size=20)
    costs = estimate(wide, 100, micro_batch_size=1, dtype="float32")
    assert costs.sampling_flops_per_token - costs.forward_flops_per_token == 2 * 3 * 4 * 16 * (2 * 20 - 2 * 8)
    turned = wide.changed(positions="rope")  # of which scores have 4 more, in either case
    costs = estimate(turned, 100, micro_batch_size=1, dtype="float32")
    assert costs.sampling_flops_per_token - costs.forward_flops_per_token == 2 * 3 * 4 * 16 * (2 * 20 - 2 * 8)
