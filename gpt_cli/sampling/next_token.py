"""Which token comes next: pure functions of logits and parameters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SamplingParameters:
    """How sharply to choose: `temperature` 0 is greedy, `top_k` None leaves all tokens."""

    temperature: float = 0.8
    top_k: int | None = None


def probabilities(logits: Tensor, parameters: SamplingParameters) -> Tensor:
    """What each token's chance is: logits [B, V] -> float64 [B, V], rows sum to 1.

    The top_k most likely tokens stay (all, if there are fewer; among equals the first). Temperature 0 gives
    the most likely one chance 1; so does a temperature so small that the division overflows. NaN counts as no
    chance; where no logit is a number, all tokens have the same.
    """
    # a broken model's NaN has no chance, and neither infinity is subtracted from itself below
    logits = logits.double().nan_to_num(nan=-1e300, posinf=1e300, neginf=-1e300)
    best = logits.argmax(dim=-1, keepdim=True)
    if parameters.temperature == 0:
        return torch.zeros_like(logits).scatter(-1, best, 1.0)
    # relative to the best, so that no temperature makes infinity minus infinity
    logits = (logits - logits.gather(-1, best)) / parameters.temperature
    if parameters.top_k is not None and parameters.top_k < logits.shape[-1]:
        order = logits.argsort(dim=-1, descending=True, stable=True)
        logits = logits.scatter(-1, order[:, parameters.top_k :], -torch.inf)
    return logits.softmax(dim=-1)


def choose(chances: Tensor, uniform: Tensor) -> Tensor:
    """The token at which the running sum of chances passes a uniform number: [B, V], [B] -> ids [B]."""
    # the last sum may be a hair under 1, so the numbers are scaled to it
    running = chances.cumsum(dim=-1)
    return torch.searchsorted(running, uniform[:, None] * running[:, -1:], right=True)[:, 0]
