"""Train part of a model: freeze the first blocks (`train.freeze`), or train low-rank products, LoRA (`train.rank`)."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from gpt_cli.common.rng import stream_key
from gpt_cli.config import Config, TrainConfig
from gpt_cli.model import GPT

SCALE = 2.0  # of the products
_EMBEDDINGS = ("token_embedding.", "position_embedding.", "ngram_embedding.")


class LowRank:
    """Trainable factors A [rank, M] and B [N, rank] of LoRA: a model's matrices W [N, M] change by SCALE B A alone.

    `include` adds the products to W, so the model and its checkpoints contain ordinary weights. Autograd computes the
    gradient dW; a hook immediately turns dW into the gradients of the factors, dA = SCALE B^T dW and dB = SCALE
    dW A^T, and drops dW (Hu et al. 2021, section 4.1).
    """

    def __init__(self, matrices: Mapping[str, nn.Parameter], settings: TrainConfig):
        assert settings.rank is not None
        self.matrices = dict(matrices)
        self.factors: dict[str, nn.Parameter] = {}
        generator = torch.Generator().manual_seed(stream_key(settings.seed, "rank"))
        for name, matrix in self.matrices.items():
            rows, columns = matrix.shape
            a = torch.empty(settings.rank, columns).uniform_(-(columns**-0.5), columns**-0.5, generator=generator)
            factors = nn.Parameter(a.to(matrix)), nn.Parameter(matrix.new_zeros(rows, settings.rank))
            self.factors |= {f"{name}.A": factors[0], f"{name}.B": factors[1]}
            matrix.register_post_accumulate_grad_hook(partial(_pass_on, *factors))
        self._included = {name: factor.detach().clone() for name, factor in self.factors.items()}

    @torch.no_grad()
    def include(self) -> None:
        """Add to the weights W the change of the products SCALE B A since the last call."""
        for name, matrix in self.matrices.items():
            a, b = (self.factors[f"{name}.{factor}"].detach() for factor in "AB")
            old_a, old_b = (self._included[f"{name}.{factor}"] for factor in "AB")
            matrix.addmm_(torch.cat((b, old_b), dim=1), torch.cat((a, -old_a)), alpha=SCALE)
            old_a.copy_(a)
            old_b.copy_(b)

    def changing(self) -> list[Tensor]:
        """Return all tensors that `include` changes: the matrices W, and copies of A and B as last added to W."""
        return [*(matrix.detach() for matrix in self.matrices.values()), *self._included.values()]

    @torch.no_grad()
    def load_state_dict(self, stored: Mapping[str, Tensor]) -> None:
        """Restore A and B from the tensors `<matrix>.<A or B>.factor`; the loaded W already include SCALE B A."""
        for name, factor in self.factors.items():
            factor.copy_(stored[f"{name}.factor"])
            self._included[name].copy_(factor)


@torch.no_grad()
def _pass_on(a: nn.Parameter, b: nn.Parameter, matrix: Tensor) -> None:
    """Turn the gradient of a matrix into the gradients of its low-rank factors `a` and `b`."""
    assert matrix.grad is not None
    of_matrix, matrix.grad = matrix.grad.mul(SCALE), None
    for factor, factor_gradient in ((a, b.T @ of_matrix), (b, of_matrix @ a.T)):
        factor.grad = factor_gradient if factor.grad is None else factor.grad.add_(factor_gradient)


def trained_parameters(model: GPT, settings: TrainConfig) -> tuple[dict[str, nn.Parameter], LowRank | None]:
    """Return the parameters to optimize, by name, and the LowRank or None; turn off gradients of frozen parameters.

    With `train.rank`, the parameters to optimize are the low-rank factors.
    """
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_trains(name, parameter, settings))
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if settings.rank is None:
        return trained, None
    low_rank = LowRank(trained, settings)
    return low_rank.factors, low_rank


def num_trained(config: Config, vocab_size: int) -> int | None:
    """Return how many weights or low-rank factor elements the optimizer changes; None if it changes all weights."""
    settings = config.train
    if settings.trains_all:
        return None
    with torch.device("meta"):
        parameters = dict(GPT(config.model, vocab_size).named_parameters())
    trained = [parameter for name, parameter in parameters.items() if _trains(name, parameter, settings)]
    return sum(sum(one.shape) * settings.rank if settings.rank is not None else one.numel() for one in trained)


def _trains(name: str, parameter: Tensor, settings: TrainConfig) -> bool:
    block = int(name.split(".")[1]) if name.startswith("blocks.") else None
    if settings.freeze is not None and (name.startswith(_EMBEDDINGS) if block is None else block < settings.freeze):
        return False
    return settings.rank is None or (block is not None and parameter.dim() == 2)
