"""The optimizers: AdamW for all parameters, or Muon for the matrices inside blocks and AdamW for the rest.

Neither is a torch.optim.Optimizer: creating one imports torch's compiler, which takes a second.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from gpt_cli.common.machine.devices import product_dtype
from gpt_cli.config import TrainConfig
from gpt_cli.errors import CheckpointError
from gpt_cli.training.data_parallel import Replicated, gradient
from gpt_cli.training.muon import Muon, stacks

_BETAS = (0.9, 0.99)
_EPSILON = 1e-8


class AdamW:
    """AdamW (Loshchilov and Hutter 2019, algorithm 2) in torch's fused form; only matrices have weight decay."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], weight_decay: float):
        self.parameters = dict(parameters)
        self.weight_decay = weight_decay
        self.num_steps = {name: torch.zeros((), device=p.device) for name, p in self.parameters.items()}
        self.averages = {name: torch.zeros_like(p, requires_grad=False) for name, p in self.parameters.items()}
        self.squares = {name: torch.zeros_like(p, requires_grad=False) for name, p in self.parameters.items()}

    @torch.no_grad()
    def step(self, learning_rate: float | Tensor) -> None:
        """Update the parameters by their gradients, which must not be None; the rate may be a float32 scalar tensor."""
        for matrices in (True, False):
            names = [name for name, p in self.parameters.items() if (p.dim() >= 2) == matrices]
            if not names:
                continue
            adamw(
                [self.parameters[name] for name in names],
                [gradient(self.parameters[name]) for name in names],
                [self.averages[name] for name in names],
                [self.squares[name] for name in names],
                [],
                [self.num_steps[name] for name in names],
                fused=True,
                amsgrad=False,
                maximize=False,
                beta1=_BETAS[0],
                beta2=_BETAS[1],
                lr=learning_rate,
                weight_decay=self.weight_decay if matrices else 0.0,
                eps=_EPSILON,
            )

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Return {"exp_avg": running averages of gradients, "exp_avg_sq": of squared gradients}, by parameter name."""
        return {"exp_avg": self.averages, "exp_avg_sq": self.squares}

    def load_state_dict(self, stored: Mapping[str, Tensor], step: int) -> None:
        """Restore the running averages, stored as `<parameter>.exp_avg` and `.exp_avg_sq`, and the number of steps."""
        for kind, averages in self.state_dict().items():
            for name, tensor in averages.items():
                tensor.copy_(stored[f"{name}.{kind}"])
        for num_steps in self.num_steps.values():
            num_steps.fill_(step)


class Optimizer:
    """AdamW alone, or Muon with AdamW, as train.optimizer requests; each rank updates the parameters that it owns."""

    def __init__(self, layout: Replicated, config: TrainConfig):
        self.config, self.layout = config, layout
        self._orthogonal = orthogonal_names(layout.parameters, config)
        self._others = [name for name in layout.parameters if name not in set(self._orthogonal)]
        matrices, others = (
            {name: layout.owned[name] for name in names if name in layout.owned}
            for names in (self._orthogonal, self._others)
        )
        self.muon = Muon(matrices, config.weight_decay, product_dtype(config.dtype)) if self._orthogonal else None
        self.adamw = AdamW(others, config.weight_decay)

    def step(self, multiplier: float | Tensor) -> None:
        """Update the parameters by their gradients, at the config's highest learning rates times `multiplier`.

        In a recorded CUDA graph, `multiplier` is a float32 scalar tensor, so that its value can change before a replay.
        """
        self.adamw.step(self.config.learning_rate * multiplier)
        if self.muon is not None:
            self.muon.step(self.config.muon_learning_rate * multiplier)

    def changing(self) -> list[Tensor]:
        """Return all tensors, float32, that `step` and `Replicated.share_weights` change if a single process trains."""
        of_adamw = [*self.adamw.num_steps.values(), *self.adamw.averages.values(), *self.adamw.squares.values()]
        of_muon = [] if self.muon is None else self.muon.momentum.values()
        included = [] if self.layout.low_rank is None else self.layout.low_rank.changing()
        return [*(parameter.detach() for parameter in self.layout.owned.values()), *of_adamw, *of_muon, *included]

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to None."""
        for parameter in self.layout.parameters.values():
            parameter.grad = None

    def state_dict(self) -> dict[str, Tensor]:
        """Return the optimizer state for a resumed run, as tensors by name, on the first rank; {} on other ranks.

        Names are `<parameter>.<kind>`. Kinds are `exp_avg` and `exp_avg_sq` (AdamW), `momentum` (Muon), `factor` (LoRA;
        parameters `<matrix>.A` and `<matrix>.B`) and `last` (the weights of the last step, if `ema_decay` is set).
        """
        tensors: dict[str, Tensor] = {}
        for names, kinds in self._kinds():
            for kind, mine in kinds.items():
                tensors |= {f"{name}.{kind}": tensor for name, tensor in self.layout.gather(names, mine).items()}
        return tensors

    def load_state_dict(self, stored: Mapping[str, Tensor], step: int, where: str) -> None:
        """Restore a `state_dict` from after `step` steps; raise CheckpointError at `where` if it does not fit."""
        expected = {
            f"{name}.{kind}": self.layout.parameters[name].shape
            for names, kinds in self._kinds()
            for kind in kinds
            for name in names
        }
        if {name: tensor.shape for name, tensor in stored.items()} != expected:
            raise CheckpointError(where, "no run can continue from it: its optimizer state does not fit its weights")
        if self.config.ema_decay is not None:
            for name, parameter in self.layout.parameters.items():
                parameter.detach().copy_(stored[f"{name}.last"])
        self.adamw.load_state_dict(stored, step)
        if self.muon is not None:
            self.muon.load_state_dict(stored)
        if self.layout.low_rank is not None:
            self.layout.low_rank.load_state_dict(stored)

    def _kinds(self) -> list[tuple[list[str], dict[str, dict[str, Tensor]]]]:
        """Return pairs: names to store (of all ranks), and this rank's tensors, as {"exp_avg": {name: tensor}, ...}."""
        others = self.adamw.state_dict()
        if self.layout.low_rank is not None:
            others = others | {"factor": {name: factor.detach() for name, factor in self.layout.owned.items()}}
        kinds = [(self._others, others)]
        if self.muon is not None:
            kinds.append((self._orthogonal, {"momentum": self.muon.state_dict()}))
        if self.config.ema_decay is not None:  # the weights of the checkpoint are averages
            last = {name: parameter.detach() for name, parameter in self.layout.owned.items()}
            kinds.append((list(self.layout.parameters), {"last": last}))
        return kinds


def orthogonal_names(parameters: Mapping[str, Tensor], config: TrainConfig) -> list[str]:
    """Return the names of the parameters that Muon updates: the matrices inside blocks; [] without Muon."""
    muon = config.optimizer == "muon"
    return [name for name, tensor in parameters.items() if muon and name.startswith("blocks.") and tensor.dim() == 2]


def undivided(parameters: Mapping[str, Tensor], config: TrainConfig) -> list[list[str]]:
    """Return the groups of parameter names that a single rank must own, because Muon updates each group at once."""
    return stacks({name: parameters[name] for name in orthogonal_names(parameters, config)})
