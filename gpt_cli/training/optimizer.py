"""How gradients change weights: AdamW for everything, or Muon for the matrices inside blocks.

Neither is a torch.optim.Optimizer: making one imports torch's compiler, which takes a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from gpt_cli.config import TrainConfig
from gpt_cli.errors import CheckpointError
from gpt_cli.machine.devices import product_dtype
from gpt_cli.training.muon import Muon

_BETAS = (0.9, 0.99)
_EPSILON = 1e-8


class AdamW:
    """Loshchilov and Hutter 2019, algorithm 2, in torch's fused form; decays matrices only."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], weight_decay: float):
        self.parameters = dict(parameters)
        self.weight_decay = weight_decay
        self.num_steps = [torch.zeros((), device=p.device) for p in self.parameters.values()]
        self.averages = {name: torch.zeros_like(p, requires_grad=False) for name, p in self.parameters.items()}
        self.squares = {name: torch.zeros_like(p, requires_grad=False) for name, p in self.parameters.items()}

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Change the parameters by their gradients, none of which may be None."""
        for matrices in (True, False):
            chosen = [(n, p) for n, (_, p) in enumerate(self.parameters.items()) if (p.dim() >= 2) == matrices]
            if not chosen:
                continue
            gradients = [p.grad for _, p in chosen]
            assert all(gradient is not None for gradient in gradients)
            averages, squares = list(self.averages.values()), list(self.squares.values())
            adamw(
                [p for _, p in chosen],
                cast("list[Tensor]", gradients),
                [averages[n] for n, _ in chosen],
                [squares[n] for n, _ in chosen],
                [],
                [self.num_steps[n] for n, _ in chosen],
                fused=True,
                amsgrad=False,
                maximize=False,
                beta1=_BETAS[0],
                beta2=_BETAS[1],
                lr=learning_rate,
                weight_decay=self.weight_decay if matrices else 0.0,
                eps=_EPSILON,
            )

    def moments(self) -> dict[str, Tensor]:
        """The running averages: `<parameter>.exp_avg` of gradients and `.exp_avg_sq` of their squares."""
        averages = {f"{name}.exp_avg": tensor for name, tensor in self.averages.items()}
        return averages | {f"{name}.exp_avg_sq": tensor for name, tensor in self.squares.items()}

    def restore(self, stored: Mapping[str, Tensor], step: int) -> None:
        """Put back what `moments` returned after a step."""
        for name, tensor in self.moments().items():
            tensor.copy_(stored[name])
        for num_steps in self.num_steps:
            num_steps.fill_(step)


class Optimizer:
    """All parameters of a model, each with the kind of step that the config gives it."""

    def __init__(self, model: nn.Module, config: TrainConfig):
        named = dict(model.named_parameters())
        orthogonal: dict[str, nn.Parameter] = {}
        if config.optimizer == "muon":
            orthogonal = {n: p for n, p in named.items() if n.startswith("blocks.") and p.dim() == 2}
        self.config = config
        self.muon = Muon(orthogonal, config.weight_decay, product_dtype(config.dtype)) if orthogonal else None
        self.adamw = AdamW({n: p for n, p in named.items() if n not in orthogonal}, config.weight_decay)
        self._parameters = list(named.values())

    def step(self, share: float) -> None:
        """Change the parameters by their gradients, at a share of the config's highest learning rates."""
        self.adamw.step(self.config.learning_rate * share)
        if self.muon is not None:
            self.muon.step(self.config.muon_learning_rate * share)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def moments(self) -> dict[str, Tensor]:
        """What a run needs to continue: running averages, named after their parameters."""
        return self.adamw.moments() | (self.muon.moments() if self.muon is not None else {})

    def restore(self, stored: Mapping[str, Tensor], step: int, where: str) -> None:
        """Put back what `moments` returned after a step; raises CheckpointError about `where` when it does not fit."""
        expected = {name: tensor.shape for name, tensor in self.moments().items()}
        if {name: tensor.shape for name, tensor in stored.items()} != expected:
            raise CheckpointError(where, "no run continues from it: its optimizer state does not fit its weights")
        self.adamw.restore(stored, step)
        if self.muon is not None:
            self.muon.restore(stored)
