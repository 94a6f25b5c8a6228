"""Losses without a head or a layer, against those of models that never had it."""

import copy
from itertools import product

import numpy as np
import pytest
import torch
from support.heads import SOME_FORMS, all_heads
from support.helpers import sharp_model

from gpt_cli.attention_maps.activations import head_columns, walk
from gpt_cli.errors import CheckpointError
from gpt_cli.evaluation.nll import standard_error
from gpt_cli.model import GPT
from gpt_cli.sampling.head_ablation import remove_heads
from gpt_cli.text.token_files import validation_windows
from gpt_cli.tools.interpret.heads import ablation
from gpt_cli.tools.interpret.heads.ablation import ablate, num_models

IDS = np.random.default_rng(0).integers(0, 31, 60)
WINDOWS = validation_windows(len(IDS), 16)  # three of 16 tokens and one of 11


def nats_of(model: GPT) -> np.ndarray:
    """What each window costs."""
    found = []
    for start, end in WINDOWS:
        ids = torch.tensor(IDS[start : end + 1])
        chances = model(ids[None, :-1])[0].log_softmax(-1)
        found.append(-chances.gather(1, ids[1:, None]).sum().item())
    return np.array(found)


def without(model: GPT, layer: int, head: int) -> GPT:
    """A model that lacks a head."""
    found = copy.deepcopy(model)
    remove_heads(found, [(layer, head)])
    return found


def with_mean(model: GPT, layer: int, head: int) -> GPT:
    """A model whose bias of projection_layer has the mean of what a head adds, in its place."""
    found, outputs = without(model, layer, head), []
    block = model.blocks[layer]
    for start, end in WINDOWS:
        made = list(walk(model, *model.embed(torch.tensor(IDS[None, start:end]))))[layer]
        outputs.append(made.heads[0, head])
    mean = head_columns(block)[head] @ torch.cat(outputs).mean(0)
    projection = found.blocks[layer].attention.projection_layer
    bias = torch.zeros_like(mean) if projection.bias is None else projection.bias
    projection.bias = torch.nn.Parameter(bias + mean)
    return found


@pytest.mark.parametrize(
    ("settings", "how"), [*((form, "mean") for form in SOME_FORMS), *((form, "zero") for form in SOME_FORMS[::4])]
)
@torch.no_grad()
def test_the_loss_is_that_of_a_model_without_the_columns_of_the_head(settings: str, how: str) -> None:
    model = sharp_model(31, *settings.split())
    change, loss = ablate(model, IDS, WINDOWS, how=how, **all_heads(model))
    assert change.error is not None
    lengths, whole = np.diff(WINDOWS)[:, 0], nats_of(model)
    assert loss.values == pytest.approx(whole.sum() / 59, abs=1e-10)
    for layer, head in product(range(2), range(model.config.num_heads)):
        other = nats_of((without if how == "zero" else with_mean)(model, layer, head)) - whole
        assert np.abs(other).max() > 0.01  # it is worth something, so that a fault would show
        assert change.values[layer, head] == pytest.approx(other.sum() / 59, abs=1e-10)
        assert change.error[layer, head] == pytest.approx(standard_error(other, lengths), abs=1e-10)


@pytest.mark.parametrize("settings", ["", "model.norm_position=post"])
@torch.no_grad()
def test_the_loss_without_a_layer_is_that_of_a_model_that_lacks_the_block(settings: str) -> None:
    model = sharp_model(31, "model.num_blocks=3", *settings.split())
    (change, _), whole = ablate(model, IDS, WINDOWS, how="layer", **all_heads(model)), nats_of(model)
    assert change.values.shape == (3,)
    assert change.error is not None
    for layer in range(3):
        other = copy.deepcopy(model)
        assert isinstance(other.blocks, torch.nn.ModuleList)
        del other.blocks[layer]
        rise = nats_of(other) - whole
        assert change.values[layer] == pytest.approx(rise.sum() / 59, abs=1e-10)
        assert change.error[layer] == pytest.approx(standard_error(rise, np.diff(WINDOWS)[:, 0]), abs=1e-10)


@pytest.mark.parametrize("how", ["zero", "mean"])
@pytest.mark.parametrize("tokens_at_once", [1, 32, 64, 10**6])
def test_neither_batches_nor_a_choice_of_heads_change_what_a_head_is_worth(
    how: str, tokens_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = sharp_model(31, "model.num_heads=4", "model.num_blocks=3")
    every, _ = ablate(model, IDS, WINDOWS, how=how, **all_heads(model))
    monkeypatch.setattr(ablation, "tokens_at_once", lambda *_: tokens_at_once)
    some, _ = ablate(model, IDS, WINDOWS, how=how, layers=[0, 2], heads=[1, 2, 3])
    expected = every.at(layer=[0, 2], head=[1, 2, 3])
    assert some.error is not None
    assert expected.error is not None
    np.testing.assert_allclose(some.values, expected.values, rtol=0, atol=1e-10)
    np.testing.assert_allclose(some.error, expected.error, rtol=0, atol=1e-10)


def test_no_batch_is_larger_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sizes = sharp_model(31, "model.num_heads=4"), []
    monkeypatch.setattr(ablation, "tokens_at_once", lambda *_: 48)  # three windows of 16
    model.final_norm.register_forward_hook(lambda _, __, x: sizes.append(x.shape[:2].numel()))
    ablate(model, IDS, WINDOWS, how="zero", **all_heads(model))
    assert max(sizes) == 48


def test_every_token_counts_once_for_each_model() -> None:
    model, counts = sharp_model(31), list[int]()
    ablate(model, IDS, WINDOWS, how="mean", count=counts.append, **all_heads(model))
    assert sum(counts) == 59 * (2 * 2 + 1) == 59 * num_models("mean", range(2), range(2))
    assert num_models("layer", range(2), range(2)) == 3


def test_bfloat16_rounds_the_changes() -> None:
    model = sharp_model(31).float()
    dtypes = ("float32", "bfloat16")
    found = (ablate(model, IDS, WINDOWS, how="zero", dtype=dtype, **all_heads(model)) for dtype in dtypes)
    exact, rounded = (change.values for change, _ in found)
    assert not np.array_equal(exact, rounded)
    assert np.abs(exact - rounded).max() < 0.2 * np.abs(exact).max()


def test_losses_that_are_not_finite_are_refused() -> None:
    model = sharp_model(31)
    with torch.no_grad():
        model.token_embedding.weight.mul_(torch.inf)
    with pytest.raises(CheckpointError, match="losses that are not finite"):
        ablate(model, IDS, WINDOWS, how="layer", **all_heads(model))
