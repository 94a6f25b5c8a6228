"""What trains of a model: matrices by changes of low rank, and what of it stays as it is."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.helpers import RunCommand, sharp_model, small_config
from torch import Tensor
from torch.func import functional_call

from gpt_cli import load
from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint, save_checkpoint
from gpt_cli.config import Config
from gpt_cli.text.tokenizers import ByteTokenizer
from gpt_cli.training.lora import SCALE, num_trained, trained_parameters
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import compute_gradient, send, take_step

RANK = small_config("train.rank=3", "model.dropout=0")


def stepped(config: Config, num_steps: int = 5) -> tuple[dict[str, Tensor], TrainingState]:
    """The weights at the start, and a training after some steps."""
    state = TrainingState.at_the_start(config, np.random.default_rng(0).integers(257, size=2000), 257)
    before = copy.deepcopy(state.model.state_dict())
    for _ in range(num_steps):
        take_step(state)
    return before, state


@pytest.mark.parametrize("form", [(), ("model.positions=rope", "model.attention=latent"), ("model.activation=swiglu",)])
def test_gradients_of_the_factors_are_those_of_the_written_out_product(form: tuple[str, ...]) -> None:
    """Hu et al. 2021, section 4.1, by autograd: a model whose matrices are W + 2 B A."""
    model = sharp_model(257, *form)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ids = torch.tensor([[1, 2, 3, 4], [9, 8, 7, 6]])
    matrices, low_rank = trained_parameters(model, RANK.train)
    assert low_rank is not None
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for factor in low_rank.factors.values():  # which are zero at the start
            factor.copy_(torch.randn(factor.shape, generator=generator) / 10)
    low_rank.include()
    for _ in range(2):  # two micro-batches add up
        model(ids).square().mean().backward()
    factors = {name: factor.detach().clone().requires_grad_() for name, factor in matrices.items()}
    products = {name: start[name] + SCALE * factors[f"{name}.B"] @ factors[f"{name}.A"] for name in low_rank.matrices}
    (2 * functional_call(sharp_model(257, *form), start | products, (ids,)).square().mean()).backward()
    for name, factor in factors.items():
        torch.testing.assert_close(matrices[name].grad, factor.grad, rtol=0, atol=1e-10)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_training_changes_matrices_of_blocks_by_products_of_its_rank_and_nothing_else() -> None:
    before, state = stepped(RANK)
    low_rank = state.layout.low_rank
    assert low_rank is not None
    for name, after in state.model.state_dict().items():
        change = after - before[name]
        if not (name.startswith("blocks.") and after.dim() == 2):
            assert torch.equal(after, before[name]), name
            continue
        product = SCALE * low_rank.factors[f"{name}.B"] @ low_rank.factors[f"{name}.A"]
        torch.testing.assert_close(change, product.detach(), rtol=0, atol=1e-6)
        values = torch.linalg.svdvals(change.double())
        assert values[0] > 1e-4
        assert (values[3:] < 1e-6).all(), "of rank 3"


def test_frozen_blocks_and_embeddings_stay_and_take_no_moments() -> None:
    before, state = stepped(small_config("train.freeze=1", "train.optimizer=muon"))
    for name, after in state.model.state_dict().items():
        stays = name.startswith(("blocks.0.", "token_embedding.", "position_embedding."))
        assert torch.equal(after, before[name]) == stays, name
        assert any(kept.startswith(f"{name}.") for kept in state.optimizer.state_dict()) == (not stays), name


def test_a_frozen_beginning_gives_the_others_the_gradient_that_they_have_without_it() -> None:
    found = []
    for settings in ([], ["train.freeze=1"]):
        state = TrainingState.at_the_start(small_config(*settings), np.arange(2000) % 257, 257)
        compute_gradient(state, send(state, 0))
        found.append({name: one.grad for name, one in state.model.named_parameters() if one.grad is not None})
    whole, part = found
    assert 0 < len(part) < len(whole)
    assert all(torch.equal(gradient, whole[name]) for name, gradient in part.items())


@pytest.mark.long
def test_a_run_of_many_heads_with_many_matrices_each_is_read_again(tmp_path: Path) -> None:
    """Latent attention has the most tensors, and each matrix has six more in a checkpoint."""
    form = ["model.attention=latent", "model.positions=rope", "model.query_latent_size=8"]
    sizes = ["model.num_heads=32", "model.d_model=64", "model.num_blocks=6"]
    config = small_config(*form, *sizes, "train.rank=1", "train.max_steps=1")
    _, state = stepped(config, 1)
    progress = replace(state.progress, step=1)
    stored = Checkpoint(config, ByteTokenizer(), progress, state.model.state_dict(), state.optimizer.state_dict())
    save_checkpoint(tmp_path / "m.safetensors", stored)
    again = read_checkpoint(tmp_path / "m.safetensors", everything=True)
    ids = np.random.default_rng(0).integers(257, size=2000)
    continued = TrainingState.continued(config, ids, again)
    assert all(map(torch.equal, continued.optimizer.changing(), state.optimizer.changing()))


@pytest.mark.parametrize("settings", [["train.rank=3"], ["train.freeze=0"], ["train.freeze=1", "train.rank=300"]])
def test_the_number_that_trains_is_known_before_the_model_is(settings: list[str]) -> None:
    config = small_config(*settings)
    state = TrainingState.at_the_start(config, np.zeros(2000, np.int32), 257)
    trained = sum(parameter.numel() for parameter in state.layout.parameters.values())
    assert num_trained(config, 257) == state.costs.num_trained == trained
    assert sum(tensor.numel() for tensor in state.optimizer.state_dict().values()) == (
        config.train.stored_per_weight * trained
    )


def test_a_run_trains_less_of_another_and_what_does_not_fit_is_refused(
    trained: Path, here: Path, run: RunCommand
) -> None:
    source = trained / "runs/smoke"
    (here / "my.txt").write_text("a text to train on. " * 100)
    begin = ["train", "--init-from", source, "--data", "my.txt", "--max-steps", "2"]
    ended = run(*begin, "--out", "new", "--set", "train.rank=2", exits=0)
    assert "parameters of low-rank changes (rank 2); the rest stays as it is" in ended.err
    old, new = (load(path).model.state_dict() for path in (source, "new"))
    assert torch.equal(old["token_embedding.weight"], new["token_embedding.weight"])
    run("train", "--out", "new", "--resume", "--max-steps", "4", "--set", "train.rank=2", exits=0)
    assert "name a trained model with --init-from" in run("train", "--config", "smoke", "--set", "train.rank=2").err
    blocks = load(source).config.model.num_blocks
    for settings, sentence in (
        ([f"train.freeze={blocks + 1}"], f"use at most {blocks}"),
        ([f"train.freeze={blocks}", "train.rank=2"], f"use at most {blocks - 1}"),
        (["train.rank=2", "train.optimizer=muon"], "low-rank changes need the optimizer adamw"),
        (["train.rank=2", "tokenizer.kind=char"], "the embeddings of a new tokenizer must train"),
    ):
        refused = run(*begin, "--out", "other", *(word for one in settings for word in ("--set", one)), exits=2)
        assert sentence in refused.err
        assert not Path("other").exists()
