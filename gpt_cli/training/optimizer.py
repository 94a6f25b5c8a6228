"""AdamW on the parameters of a model, and its moments as tensors named after them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gpt_cli.config import TrainConfig
from gpt_cli.errors import CheckpointError
from gpt_cli.model import GPT

_MOMENTS = ("exp_avg", "exp_avg_sq")


def make_optimizer(model: GPT, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW in its fused form; weight decay on matrices only. Loshchilov and Hutter 2019, algorithm 2."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.99), fused=True)


def moments(model: GPT, optimizer: torch.optim.AdamW) -> dict[str, Tensor]:
    """The running averages that AdamW keeps: `<parameter>.exp_avg` and `.exp_avg_sq`."""
    return {
        f"{name}.{moment}": optimizer.state[parameter][moment]
        for name, parameter in model.named_parameters()
        for moment in _MOMENTS
        if parameter in optimizer.state
    }


def restore_moments(model: GPT, optimizer: torch.optim.AdamW, stored: Mapping[str, Tensor], step: int) -> None:
    """Put stored moments back; raises CheckpointError where they do not fit the model."""
    expected = {f"{n}.{moment}": p.shape for n, p in model.named_parameters() for moment in _MOMENTS}
    if {name: tensor.shape for name, tensor in stored.items()} != expected:
        raise CheckpointError(
            "checkpoint",
            "holds no optimizer state that fits its weights",
            "a run continues from a step's checkpoint, not from best.safetensors",
        )
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        state["step"] = torch.tensor(float(step), device=parameter.device)
        for moment in _MOMENTS:
            state[moment] = stored[f"{name}.{moment}"].to(parameter.device)
