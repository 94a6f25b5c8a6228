"""The tuned lens: an affine map of the residual stream after each block, trained to predict what the model predicts.

Belrose et al. 2023, "Eliciting Latent Predictions from Transformers with the Tuned Lens".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.adam import adam

from gpt_cli.common.limits import HEADS_WINDOW
from gpt_cli.common.machine.devices import to_device
from gpt_cli.common.rng import permutation, random_words, stream_key
from gpt_cli.evaluation.nll import LOGITS_AT_ONCE
from gpt_cli.model import GPT
from gpt_cli.model.gpt import require_finite
from gpt_cli.text.token_files import Ids, windows

BATCH_TOKENS = 1024  # that the model reads in a step
POSITIONS = 512  # of them, at which the maps of all layers learn
MOST_STEPS, FEWEST_STEPS = 500, 50
OPERATIONS = 5e12  # of a training, about: below two minutes on two cores
LEARNING_RATE = 0.4  # divided by d_model, of the first step; it falls to zero in a line


@dataclass(frozen=True)
class Maps:
    """Affine maps x + W x + b of the residual stream after each block but the last: W [L - 1, D, D], b [L - 1, D]."""

    weights: Tensor
    biases: Tensor

    @classmethod
    def identity(cls, model: GPT) -> Maps:
        """Return maps of zeros, which leave the residual stream unchanged."""
        D, like = model.config.d_model, model.output_weight
        return cls(like.new_zeros(len(model.blocks) - 1, D, D), like.new_zeros(len(model.blocks) - 1, D))

    def __call__(self, layer: int, x: Tensor) -> Tensor:
        """Map the residual stream after block `layer`, [..., D] -> [..., D]; after the last block, do not change it."""
        return x if layer == len(self.weights) else _mapped(x, self.weights[layer], self.biases[layer])


def num_steps(model: GPT) -> int:
    """Number of training steps of the maps; depends only on the model's sizes, so that a training can be repeated."""
    D, V, num_maps = model.config.d_model, model.vocab_size, len(model.blocks) - 1
    of_blocks = sum(parameter.numel() for parameter in model.blocks[0].parameters()) * len(model.blocks)
    # the stream of all tokens; then logits and their gradient, the map and its two gradients
    operations = 2 * of_blocks * BATCH_TOKENS + num_maps * POSITIONS * (4 * D * V + 6 * D * D)
    return min(MOST_STEPS, max(FEWEST_STEPS, int(OPERATIONS // operations)))


def train_maps(
    model: GPT,
    ids: Ids,
    seed: int,
    where: str = "checkpoint",
    count: Callable[[int], object] = lambda _: None,
    *,
    steps: int,
) -> Maps:
    """Train the maps of a model, starting with the identity, on windows of ids [N] drawn anew in each step.

    The loss of a map is the KL divergence from the model's prediction p to the map's prediction q, sum p log (p / q),
    averaged over positions drawn from the windows. `count` receives 1 after each of `steps` steps.
    Only one batch of residual streams is in memory. Raises CheckpointError, at `where`, for logits that are not finite.
    """
    maps = Maps.identity(model)
    averages, squares = ([torch.zeros_like(part) for part in (maps.weights, maps.biases)] for _ in range(2))
    done = [torch.zeros((), device=maps.weights.device) for _ in range(2)]
    for step in range(steps if len(maps.weights) else 0):
        streams = _streams(model, ids, stream_key(seed, "tuned lens", step))
        gradients = _gradients(model, maps, streams, where)
        rate = LEARNING_RATE / model.config.d_model * (1 - step / steps)
        how = {"amsgrad": False, "maximize": False, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}
        adam([maps.weights, maps.biases], gradients, averages, squares, [], done, lr=rate, **how)
        count(1)
    return maps


@torch.no_grad()
def _streams(model: GPT, ids: Ids, key: int) -> list[Tensor]:
    """Return the residual stream after each block, [positions, D] each, at positions that `key` draws at random."""
    C = min(model.config.context_length, HEADS_WINDOW, len(ids))
    num_windows = max(1, BATCH_TOKENS // C)
    starts = random_words(key, 0, num_windows).astype(np.int64) % (len(ids) - C + 1)
    most = min(POSITIONS, max(1, LOGITS_AT_ONCE // (4 * model.vocab_size)))  # of predictions and what they take
    chosen = np.sort(permutation(key, num_windows * C)[:most])
    device = model.output_weight.device
    batch = to_device(torch.from_numpy(windows(ids, starts, C).astype(np.int64)), device)
    places = to_device(torch.from_numpy(chosen), device)
    return [stream.flatten(0, 1)[places] for stream in model.residual_streams(batch)]


def divergence(log_q: Tensor, log_p: Tensor) -> Tensor:
    """KL divergence of the last layer's p from a layer's q, sum p log (p / q): [..., V], [..., V] -> [...], in nats."""
    return F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(dim=-1)


def _gradients(model: GPT, maps: Maps, streams: list[Tensor], where: str) -> list[Tensor]:
    """Gradients of each layer's mean divergence with respect to W [L - 1, D, D] and b [L - 1, D], layer by layer."""
    with torch.no_grad():
        log_p = model.logits(streams[-1])
        require_finite(log_p, "logits", where)
        log_p = log_p.log_softmax(dim=-1)
    parts = []
    for layer, stream in enumerate(streams[:-1]):
        parameters = [part[layer].detach().requires_grad_() for part in (maps.weights, maps.biases)]
        log_q = model.logits(_mapped(stream, *parameters)).log_softmax(dim=-1)
        parts.append(torch.autograd.grad(divergence(log_q, log_p).mean(), parameters))
    return [torch.stack(part) for part in zip(*parts, strict=True)]


def _mapped(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x + F.linear(x, weight, bias)
