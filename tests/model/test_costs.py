from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from gpt_cli.config import Config, ModelConfig, TrainConfig
from gpt_cli.config.load import read_config
from gpt_cli.distributed.collectives import ProcessGroup
from gpt_cli.model import GPT
from gpt_cli.model.costs import cache_bytes_by_attention, estimate, gradients_waiting, parameters_by_part
from gpt_cli.training.data_parallel import Replicated, owners
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import compute_gradient, send

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


def test_weights_are_cast_for_products_in_bfloat16() -> None:
    """Beside half of the activations of products: the difference of two sizes leaves the casts out."""
    found = [
        [estimate(SIZES, 100, micro_batch_size=size, dtype=dtype).training_bytes for size in (1, 2)]
        for dtype in ("float32", "bfloat16")
    ]
    fixed = [2 * one - two for one, two in found]
    parameters = sum(parameters_by_part(SIZES, 100).values())
    assert fixed == [16 * parameters, 18 * parameters]


@pytest.mark.parametrize(("dropout", "holes"), [(0.0, 3.5), (0.1, 5.5)])
def test_the_holes_of_the_heap_count_in_main_memory_only(dropout: float, holes: float) -> None:
    """So many numbers of 4 bytes for each of 1,024^2 pairs, 4 heads and 2 sequences."""
    sizes = SIZES.changed(context_length=1024, dropout=dropout)
    cpu, cuda = (
        estimate(sizes, 100, micro_batch_size=2, dtype="float32", device=device).training_bytes
        for device in ("cpu", "cuda")
    )
    assert cpu - cuda == holes * 4 * 1024**2 * 4 * 2


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


@pytest.mark.parametrize(("num_micro_batches", "waiting"), [(1, 0), (3, 0), (4, 1), (6, 1), (8, 2), (16, 3)])
def test_gradients_wait_at_each_level_of_the_tree_above_pairs(
    num_micro_batches: int, waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as a step holds at most: the test counts them while the step takes and adds them."""
    held = [0]

    def take(layout: Replicated) -> list[Tensor]:
        held.append(held[-1] + 1)
        return real_take(layout)

    def add(layout: Replicated, taken: list[Tensor]) -> None:
        held.append(held[-1] - 1)
        real_add(layout, taken)

    real_take, real_add = Replicated.take_gradients, Replicated.add_gradients
    monkeypatch.setattr(Replicated, "take_gradients", take)
    monkeypatch.setattr(Replicated, "add_gradients", add)
    config = Config(model=SIZES, train=TrainConfig(batch_size=num_micro_batches, micro_batch_size=1, device="cpu"))
    config = config.changed(train={"dtype": "float32", "compile": "off"})
    state = TrainingState.at_the_start(config, torch.arange(200).numpy() % 100, 100)
    compute_gradient(state, send(state, 0))
    assert (max(held), held[-1]) == (gradients_waiting(num_micro_batches), 0) == (waiting, 0)
    one, many = (
        estimate(SIZES, 100, micro_batch_size=1, dtype="float32", num_micro_batches=micro_batches).training_bytes
        for micro_batches in (1, num_micro_batches)
    )
    assert many - one == waiting * sum(p.numel() * 4 for p in state.model.parameters())


def test_one_process_sends_and_gathers_nothing() -> None:
    alone = estimate(SIZES, 100, micro_batch_size=2, dtype="float32", num_micro_batches=8)
    assert (alone.sent_bytes_per_step, alone.gathered_bytes) == (0, 0)


class Counted(ProcessGroup):
    """One of many whose messages go nowhere; counts the bytes that it sends."""

    num_bytes = 0

    def _exchange(self, peer: int, sent: Sequence[Tensor], received: Sequence[Tensor]) -> None:
        self.num_bytes += sum(tensor.nbytes for tensor in sent)


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_a_rank_sends_what_its_costs_say(num_ranks: int) -> None:
    """Each part of 10 numbers goes to its owner through halves of halves, and comes back so: as in a ring."""
    for rank in range(num_ranks):
        group = Counted(Mock(rank_env=Mock(rank=rank, size=num_ranks)))
        part = group.reduce_scatter([torch.zeros(10) for _ in range(num_ranks)])
        group.all_gather(part, [10] * num_ranks)
        assert group.num_bytes == 2 * 4 * 10 * (num_ranks - 1)
    parameters = sum(parameters_by_part(SIZES, 100).values())
    costs = estimate(SIZES, 100, num_ranks=num_ranks, micro_batch_size=1, dtype="float32", num_micro_batches=8)
    assert costs.sent_bytes_per_step == pytest.approx(2 * 4 * parameters * (num_ranks - 1) / num_ranks, abs=8)


@pytest.mark.parametrize("config", ["tiny", "small"])
def test_the_largest_owner_has_little_more_than_its_part(config: str) -> None:
    """Weights, moments and a gradient of which it is assumed that they are divided evenly."""
    asked = read_config(config)
    with torch.device("meta"):
        model = GPT(asked.model, asked.tokenizer.vocab_size)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    for num_ranks in (2, 4, 8):
        largest = max(sum(sizes[name] for name in names) for names in owners(sizes, [], num_ranks))
        assert largest < 1.1 * sum(sizes.values()) / num_ranks


def test_more_processes_hold_less_each() -> None:
    sizes = read_config("small").model
    batch: dict[str, Any] = {"micro_batch_size": 1, "num_micro_batches": 16, "dtype": "bfloat16"}
    held = [estimate(sizes, 4096, num_ranks=ranks, **batch).training_bytes for ranks in (2, 4, 8, 16)]
    assert held == sorted(held, reverse=True)
