"""Heads that a user names, and models without them."""

import pytest
import torch
from support.helpers import sharp_model, small_config

from gpt_cli.errors import UsageError
from gpt_cli.sampling.head_ablation import head_names, parse_heads, remove_heads

SIZES = small_config("model.num_blocks=3").model  # of 2 heads


def test_heads_are_layer_and_number_in_order_and_once() -> None:
    assert parse_heads("2.1, 0.0,2.1", SIZES) == ((0, 0), (2, 1))
    assert head_names([(0, 0), (2, 1)]) == ["0.0", "2.1"]


@pytest.mark.parametrize("text", ["", "2", "2.", ".1", "2.1,", "2-1", "-1.0", "1.0.1", "1.x", "0" * 30 + "1.0"])
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a head"):
        parse_heads(text, SIZES)


@pytest.mark.parametrize("text", ["3.0", "0.2", "0.0,99.99"])
def test_a_head_that_the_model_lacks_is_refused_with_its_sizes(text: str) -> None:
    with pytest.raises(UsageError, match=r"layers 0 to 2 with heads 0 to 1, so .* is out of range"):
        parse_heads(text, SIZES)


@pytest.mark.parametrize("form", ["multi_head", "grouped_query", "latent"])
@torch.no_grad()
def test_only_the_columns_of_a_removed_head_are_zero(form: str) -> None:
    model = sharp_model(31, f"model.attention={form}", "model.num_heads=4")
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    remove_heads(model, [(1, 2)])
    name = "blocks.1.attention.projection_layer.weight"
    before[name][:, 8:12] = 0  # the third head of size 4
    for other, parameter in model.named_parameters():
        assert torch.equal(parameter, before[other]), other
