from __future__ import annotations

import pytest
import torch
from helpers import small_config

from gpt_cli.errors import CheckpointError
from gpt_cli.model import GPT
from gpt_cli.training.optimizer import make_optimizer, moments, restore_moments

CONFIG = small_config()


def stepped() -> tuple[GPT, torch.optim.AdamW]:
    model = GPT(CONFIG.model, 257, torch.Generator().manual_seed(0)).eval()
    optimizer = make_optimizer(model, CONFIG.train)
    model(torch.tensor([[1, 2, 3]])).sum().backward()
    optimizer.step()
    return model, optimizer


def test_every_parameter_is_in_one_group_and_only_matrices_decay() -> None:
    model, optimizer = stepped()
    grouped = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert {id(parameter) for parameter in grouped} == {id(parameter) for parameter in model.parameters()}
    assert len(grouped) == len(list(model.parameters()))
    for group in optimizer.param_groups:
        assert {parameter.dim() >= 2 for parameter in group["params"]} == {group["weight_decay"] > 0}


def test_fused_steps_equal_the_textbook() -> None:
    """Loshchilov and Hutter 2019, algorithm 2, after one step: decay, then the sign of the gradient."""
    parameter = torch.nn.Parameter(torch.tensor([[1.0, -2.0]]))
    model = torch.nn.Module()
    model.weight = parameter
    optimizer = make_optimizer(model, CONFIG.train)  # type: ignore[arg-type]
    parameter.grad = torch.tensor([[3.0, -0.5]])
    optimizer.step()
    rate, decay = CONFIG.train.learning_rate, CONFIG.train.weight_decay
    expected = torch.tensor([[1.0, -2.0]]) * (1 - rate * decay) - rate * torch.tensor([[1.0, -1.0]])
    torch.testing.assert_close(parameter.detach(), expected)


def test_moments_put_back_continue_the_same_way() -> None:
    model, optimizer = stepped()
    again = GPT(CONFIG.model, 257).eval()
    again.load_state_dict(model.state_dict())
    restored = make_optimizer(again, CONFIG.train)
    restore_moments(again, restored, {name: t.clone() for name, t in moments(model, optimizer).items()}, step=1)
    for one, optimizing in ((model, optimizer), (again, restored)):
        one.zero_grad()
        one(torch.tensor([[4, 5]])).square().sum().backward()
        optimizing.step()
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_missing_moments_are_told() -> None:
    model, _ = stepped()
    with pytest.raises(CheckpointError, match=r"not from best\.safetensors"):
        restore_moments(model, make_optimizer(model, CONFIG.train), {}, step=1)
