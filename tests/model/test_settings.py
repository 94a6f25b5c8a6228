"""Each general setting of the model beside its equation, written out by hand or in plain torch."""

import math

import pytest
import torch
import torch.nn.functional as F
from support.helpers import sharp_model

from gpt_cli.model import GPT, Block
from gpt_cli.model.attention import causal_mask
from gpt_cli.model.costs import estimate
from gpt_cli.model.dropout import DropMasks, drop_keys
from gpt_cli.model.positions import RopeScaling, RotaryPositions, rotate

IDS = torch.tensor([[10, 250, 3, 77, 3, 10, 99, 1, 5], [7, 7, 7, 1, 2, 3, 200, 4, 9]])
ROPE = "positions=rope"
GROUPED = "attention=grouped_query num_key_value_heads=2"
SETTINGS = (
    "norm_epsilon=0.5",
    f"{ROPE} rope_base=500 rotary_size=2",
    f"{ROPE} rope_scaling=8 rope_original_length=16",
    "head_size=6",
    f"head_size=10 {GROUPED} {ROPE}",
    "attention=latent head_size=6 query_latent_size=6",
    f"attention=latent {ROPE} query_latent_size=7",
    f"attention=latent {ROPE}",
    "scale=none",
    f"scale=none {GROUPED}",
    "scale=none attention=latent",
    "qkv_bias=true",
    f"qkv_bias=true {GROUPED} {ROPE}",
    "activation=swiglu",
    "activation=geglu feed_forward_size=20 bias=false",
    f"qk_norm=true {ROPE}",
    f"qk_norm=true {GROUPED} {ROPE} rotary_size=2 norm=rmsnorm",
    "parallel_branches=true",
    "attention_window=3",
    "attention_window=[null,2]",
    "attention=latent attention_window=1",
)


PLAIN = (
    "positions=learned norm=layernorm norm_position=pre",
    "positions=sinusoidal norm=rmsnorm norm_position=pre",
    "positions=rope norm=layernorm norm_position=post",
    "positions=none norm=rmsnorm norm_position=post",
)


def model_of(words: str) -> GPT:
    return sharp_model(257, *(f"model.{word}" for word in f"num_heads=4 dropout=0.3 {words}".split()))


@pytest.mark.parametrize(
    ("words", "training"),
    [
        *((words, True) for words in (*PLAIN, *SETTINGS)),
        *((words, False) for words in (*PLAIN, GROUPED, f"attention=latent {ROPE}", "attention_window=3")),
    ],
)
def test_all_heads_at_once_compute_what_each_computes_alone(words: str, training: bool) -> None:
    model, found = model_of(words).train(training), []
    for fused in (True, False):
        logits = model.use_fused(fused)(IDS, DropMasks(drop_keys(5, 2, len(model.blocks)), 0, 0.3))
        found.append([logits, *torch.autograd.grad(logits.square().sum(), list(model.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_token_sees_itself_and_as_many_before_it_as_its_window_has() -> None:
    expected = [[0, 1, 1, 1], [0, 0, 1, 1], [1, 0, 0, 1], [1, 1, 0, 0]]
    assert causal_mask(4, window=2).tolist() == [[bool(hidden) for hidden in row] for row in expected]
    for wide in (4, 9):
        assert causal_mask(4, window=wide).equal(causal_mask(4))
    weights = model_of("attention_window=[null,2]").attention_weights(IDS)
    assert (weights[0].tril() > 0).sum() == 2 * 4 * 45  # sequences, heads, 9 x 10 / 2 pairs
    assert (weights[1] > 0).sum() == 2 * 4 * 17  # one for the first token, two for each other


def test_rope_turns_the_first_numbers_of_a_head_alone() -> None:
    rotary = RotaryPositions(8, 2, base=500.0)
    x = torch.arange(1.0, 5.0).repeat(3, 1)
    turned = rotate(x, rotary(3))
    assert turned[:, 2:].equal(x[:, 2:])
    for t in range(3):  # the only pair of two numbers turns by one radian per token, whatever the base
        expected = [math.cos(t) - 2 * math.sin(t), 2 * math.cos(t) + math.sin(t)]
        torch.testing.assert_close(turned[t, :2], torch.tensor(expected))
    assert rotary.frequencies().tolist() == [1.0]
    torch.testing.assert_close(RotaryPositions(8, 4, base=100.0).frequencies(), torch.tensor([1.0, 0.1]).double())


def test_angles_beyond_the_table_are_those_of_a_longer_one() -> None:
    rotary = RotaryPositions(100_000, 2)
    assert rotary.table.shape == (2, 8192, 2)
    found = rotary(9000)
    assert found[:, :8192].equal(RotaryPositions(100_000, 2).table)
    assert rotary(8500).data_ptr() == found.data_ptr(), "the longer table stays"
    torch.testing.assert_close(found[:, 8999, 0], torch.tensor([math.cos(8999), math.sin(8999)]))


def test_scaled_rope_slows_slow_pairs_keeps_fast_ones_and_mixes_between() -> None:
    scaling = RopeScaling(8.0, 64, 1.0, 4.0)
    turns = torch.tensor([0.5, 1.0, 2.5, 4.0, 10.0], dtype=torch.float64)
    frequencies = turns * 2 * math.pi / 64
    # half way between, half of the frequency stays and half is slowed: (1 + 1 / 8) / 2
    factors = torch.tensor([1 / 8, 1 / 8, 9 / 16, 1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(scaling.slowed(frequencies), frequencies * factors)


def test_a_gate_multiplies_the_hidden_numbers() -> None:
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    for name, function in (("swiglu", F.silu), ("geglu", F.gelu)):
        part = model_of(f"activation={name}").blocks[0].feed_forward
        assert part.gate is not None
        assert part.gate.out_features == 48  # 2/3 of 4 x 16 is 42.7
        expected = part.contract(function(part.gate(x)) * part.expand(x))
        torch.testing.assert_close(part(x), expected)
    assert model_of("").blocks[0].feed_forward.gate is None


def test_parallel_branches_read_the_input_of_the_block() -> None:
    block: Block = model_of("parallel_branches=true").blocks[0]
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    expected = x + block.attention(block.norm_1(x)) + block.feed_forward(block.norm_2(x))
    torch.testing.assert_close(block(x), expected)


def test_norms_add_the_epsilon_of_the_config() -> None:
    assert [model_of(words).final_norm.eps for words in ("", "norm=rmsnorm", "norm_epsilon=0.5")] == [1e-5, 1e-6, 0.5]


def test_a_window_costs_less_to_compute_and_to_remember() -> None:
    whole, half = (
        estimate(model_of(words).config, 257, micro_batch_size=1, dtype="float32")
        for words in ("", "attention_window=[null,4]")
    )
    # of 16 tokens, one of two blocks has slots for twice its window: keys and values of 16 numbers in float32
    assert whole.sampling_bytes - half.sampling_bytes == 8 * 2 * 16 * 4
    # and it multiplies 12 fewer keys and values, each of 4 heads of 4 numbers
    assert whole.forward_flops_per_token - half.forward_flops_per_token == 2 * 12 * 4 * (4 + 4)
