"""Compute the probabilities of the next token, and draw the token; `CpuDraws` draws on the CPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gpt_cli.common.rng import stream_key
from gpt_cli.model.gpt import require_finite
from gpt_cli.sampling.decoder import Decoder

_AHEAD = 256  # steps


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

    The parameters apply in this order: the penalty, which divides positive logits of seen tokens and multiplies
    negative ones (Keskar et al. 2019, section 4.1); the temperature; top_k, where lower ids win a tie; top_p (Holtzman
    et al. 2020, section 3.1); min_p (Nguyen et al. 2024, section 3). At least one token stays; rows sum to 1. If the
    temperature is 0, or so small that the division overflows, the likeliest token has probability 1. A token with
    logit NaN has probability 0; if all logits of a row are NaN, its tokens are equally likely.
    """
    # finite, so that no infinity is subtracted from itself below
    logits = logits.double().nan_to_num(nan=-1e300, posinf=1e300, neginf=-1e300)
    if seen is not None and parameters.repetition_penalty != 1:
        penalty = parameters.repetition_penalty
        penalised = torch.where(logits > 0, logits / penalty, logits * penalty).clamp(-1e300, 1e300)
        logits = torch.where(seen, penalised, logits)
    if parameters.temperature == 0:
        return torch.zeros_like(logits).scatter(-1, logits.argmax(dim=-1, keepdim=True), 1.0)
    # relative to the best, so that no temperature makes infinity minus infinity
    p = ((logits - logits.amax(dim=-1, keepdim=True)) / parameters.temperature).softmax(dim=-1)
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
    # the last sum may be slightly below 1, so the numbers are scaled to it
    running = p.cumsum(dim=-1)
    return torch.searchsorted(running, uniform[:, None] * running[:, -1:], right=True)[:, 0]


def draw_next(logits: Tensor, parameters: SamplingParameters, seen: Tensor, uniform: Tensor) -> list[Tensor]:
    """Draw a token for each row; return ids, log probabilities, lowest and highest logits, each float64 [B].

    `seen` [B, V] marks the tokens of each text so far, and is updated if there is a repetition penalty; `uniform` [B]
    has random numbers in [0, 1).
    """
    logits = logits.double()
    picked = draw_token(probabilities(logits, parameters, seen), uniform)
    if parameters.repetition_penalty != 1:
        seen.scatter_(1, picked[:, None], True)
    log_probabilities = logits.log_softmax(dim=-1).gather(-1, picked[:, None])[:, 0]
    return [picked.double(), log_probabilities, *logits.aminmax(dim=-1)]


class Draw(NamedTuple):
    """A drawn token, and its log-probability under the model itself, before temperature and other parameters."""

    token: int
    log_probability: float  # nats


class Uniforms:
    """Uniform random numbers in [0, 1), one per row and step; sample i of every prompt gets the same numbers."""

    def __init__(self, seed: int, num_samples: int, num_prompts: int):
        self._streams = [torch.Generator().manual_seed(stream_key(seed, "sample", i)) for i in range(num_samples)]
        self._num_prompts, self._drawn = num_prompts, torch.empty(num_samples, 0, dtype=torch.float64)

    def of_steps(self, first: int, end: int) -> Tensor:
        """Return the random numbers of each row (sequence) for steps `first` to `end` - 1: float64 [B, end - first]."""
        blocks = [self._drawn]
        for _ in range(self._drawn.shape[1], end, _AHEAD):
            drawn = [torch.rand(_AHEAD, generator=stream, dtype=torch.float64) for stream in self._streams]
            blocks.append(torch.stack(drawn))
        self._drawn = torch.cat(blocks, dim=1) if len(blocks) > 1 else self._drawn
        return self._drawn[:, first:end].repeat(self._num_prompts, 1)


class CpuDraws:
    """Sampler that draws tokens on the CPU, one per row and step; the decoder computes the logits on its device."""

    def __init__(
        self,
        decoder: Decoder,
        rows: Sequence[Sequence[int]],
        parameters: SamplingParameters,
        uniforms: Uniforms,
        num_new_tokens: int,
    ):
        self.decoder, self.parameters, self.uniforms = decoder, parameters, uniforms
        self.step, self.tokens = 0, list[int]()
        self._logits = decoder.prefill(rows, num_new_tokens)
        self.seen = torch.zeros(self._logits.shape, dtype=torch.bool)
        for number, prompt in enumerate(rows):
            self.seen[number, list(prompt)] = True

    def next(self) -> list[Draw]:
        """Draw the next token of each row; raise CheckpointError if logits are not finite."""
        return self.draw(self.logits())

    def logits(self) -> Tensor:
        """Compute the logits of each row's next token: [B, V], on the CPU; at step 0, return those of `prefill`."""
        if self.step:
            self._logits = self.decoder.decode(self.tokens)
        return self._logits.cpu()

    def draw_results(self, logits: Tensor, seen: Tensor) -> Tensor:
        """Apply `draw_next` with this step's random numbers; return its four results, stacked to float64 [4, B]."""
        uniform = self.uniforms.of_steps(self.step, self.step + 1)[:, 0]
        return torch.stack(draw_next(logits, self.parameters, seen, uniform))

    def draw(self, logits: Tensor) -> list[Draw]:
        """Draw a token of each row from `logits` [B, V]; raise CheckpointError if they are not finite."""
        drawn = to_draws(self.draw_results(logits, self.seen), self.decoder.where)
        self.step, self.tokens = self.step + 1, [draw.token for draw in drawn]
        return drawn


def to_draws(drawn: Tensor, where: str) -> list[Draw]:
    """Convert `draw_next` results [4, B] to Draws; raise CheckpointError, naming `where`, if logits are not finite."""
    require_finite(drawn[2:], "logits", where)
    return list(map(Draw, drawn[0].long().tolist(), drawn[1].tolist()))
