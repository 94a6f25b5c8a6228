"""Choose the next token: pure functions of logits and sampling parameters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SamplingParameters:
    """Sampling parameters; None, top_k 0, top_p 1 and repetition_penalty 1 leave the probabilities as they are."""

    temperature: float = 0.8  # below 1 sharper; 0 is greedy
    top_k: int | None = None  # the number of likeliest tokens that stay
    top_p: float | None = None  # the likeliest tokens stay until their probabilities add up to it
    min_p: float | None = None  # tokens stay whose probability is at least this share of the highest
    repetition_penalty: float = 1.0  # above 1 makes tokens that already occurred less likely


def probabilities(logits: Tensor, parameters: SamplingParameters, seen: Tensor | None = None) -> Tensor:
    """Return token probabilities: logits [B, V], tokens of the text so far (`seen`) as bool [B, V] -> float64 [B, V].

    The steps, each applied to the result of the one before: the penalty (divides positive logits of seen tokens,
    multiplies negative ones; Keskar et al. 2019, section 4.1), the temperature, top_k (of equal tokens, the first
    stay), top_p (Holtzman et al. 2020, section 3.1), min_p (Nguyen et al. 2024, section 3). At least one token stays;
    rows sum to 1. A temperature of 0, or one so small that the division overflows, gives the likeliest token
    probability 1. A logit of NaN gives probability 0; if all logits of a row are NaN, its tokens are equally likely.
    """
    # finite, so that no infinity is subtracted from itself below
    logits = logits.double().nan_to_num(nan=-1e300, posinf=1e300, neginf=-1e300)
    if seen is not None and parameters.repetition_penalty != 1:
        penalty = parameters.repetition_penalty
        penalised = torch.where(logits > 0, logits / penalty, logits * penalty).clamp(-1e300, 1e300)
        logits = torch.where(seen, penalised, logits)
    best = logits.argmax(dim=-1, keepdim=True)
    if parameters.temperature == 0:
        return torch.zeros_like(logits).scatter(-1, best, 1.0)
    # relative to the best, so that no temperature makes infinity minus infinity
    p = ((logits - logits.gather(-1, best)) / parameters.temperature).softmax(dim=-1)
    if parameters.top_k or parameters.top_p is not None:
        order = p.argsort(dim=-1, descending=True, stable=True)
        ordered = p.gather(-1, order)
        if parameters.top_k:
            ordered[:, parameters.top_k :] = 0
            ordered = ordered / ordered.sum(dim=-1, keepdim=True)
        if parameters.top_p is not None and parameters.top_p < 1:
            before = ordered.cumsum(dim=-1) - ordered
            before[:, 0] = -1  # the first one stays
            ordered = ordered.masked_fill(before >= parameters.top_p, 0)
        p = torch.zeros_like(p).scatter(-1, order, ordered)
    if parameters.min_p is not None:
        p = p.masked_fill(p < parameters.min_p * p.amax(dim=-1, keepdim=True), 0)
    return p / p.sum(dim=-1, keepdim=True)


def draw_token(p: Tensor, uniform: Tensor) -> Tensor:
    """Draw tokens by inverse transform sampling: probabilities [B, V], uniform numbers [B] in [0, 1) -> ids [B]."""
    # the last sum may be a hair under 1, so the numbers are scaled to it
    running = p.cumsum(dim=-1)
    return torch.searchsorted(running, uniform[:, None] * running[:, -1:], right=True)[:, 0]
