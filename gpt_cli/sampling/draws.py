"""Draw the next tokens of all rows on the host, from logits that the decoder computes step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gpt_cli.common.rng import stream_key
from gpt_cli.model.gpt import require_finite
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.next_token import SamplingParameters, draw_token, probabilities

_AHEAD = 256  # steps


class NextTokens(NamedTuple):
    """Tokens of all rows, and their log probabilities in nats under the model itself, before all SamplingParameters."""

    tokens: list[int]
    log_probabilities: list[float]


class Uniforms:
    """Uniform random numbers in [0, 1), one per row and step: sample i of any prompt has stream i of the seed."""

    def __init__(self, seed: int, num_samples: int, num_prompts: int):
        self._streams = [torch.Generator().manual_seed(stream_key(seed, "sample", i)) for i in range(num_samples)]
        self._num_prompts, self._drawn = num_prompts, torch.empty(num_samples, 0, dtype=torch.float64)

    def of_steps(self, first: int, end: int) -> Tensor:
        """Return the uniform numbers of all rows for steps `first` to `end` - 1: float64 [B, end - first]."""
        blocks = [self._drawn]
        for _ in range(self._drawn.shape[1], end, _AHEAD):
            drawn = [torch.rand(_AHEAD, generator=stream, dtype=torch.float64) for stream in self._streams]
            blocks.append(torch.stack(drawn))
        self._drawn = torch.cat(blocks, dim=1) if len(blocks) > 1 else self._drawn
        return self._drawn[:, first:end].repeat(self._num_prompts, 1)


def draw_next(logits: Tensor, parameters: SamplingParameters, seen: Tensor, uniform: Tensor) -> Tensor:
    """Draw a token for each row; return ids, log probabilities, lowest and highest logits, stacked: float64 [4, B].

    `seen` [B, V] marks the tokens of each text so far, and is updated; `uniform` [B] has random numbers in [0, 1).
    """
    picked = draw_token(probabilities(logits, parameters, seen), uniform)
    seen.scatter_(1, picked[:, None], True)
    log_probabilities = logits.double().log_softmax(dim=-1).gather(-1, picked[:, None])[:, 0]
    return torch.stack([picked.double(), log_probabilities, *(each.double() for each in logits.aminmax(dim=-1))])


class HostDraws:
    """Draws on the host, from logits that the decoder computes step by step."""

    def __init__(
        self,
        decoder: Decoder,
        rows: Sequence[Sequence[int]],
        parameters: SamplingParameters,
        uniforms: Uniforms,
        where: str,
    ):
        self.decoder, self.parameters, self.uniforms, self.where = decoder, parameters, uniforms, where
        self.step, self.tokens = 0, list[int]()
        self._logits = decoder.prefill(rows)
        self.seen = torch.zeros(self._logits.shape, dtype=torch.bool)
        for number, prompt in enumerate(rows):
            self.seen[number, list(prompt)] = True

    def next(self) -> NextTokens:
        """Draw the next token of each row; raise CheckpointError, naming `self.where`, if logits are not finite."""
        if self.step:
            self._logits = self.decoder.decode(self.tokens)
        uniform = self.uniforms.of_steps(self.step, self.step + 1)[:, 0]
        drawn = to_next_tokens(draw_next(self._logits.cpu(), self.parameters, self.seen, uniform), self.where)
        self.step, self.tokens = self.step + 1, drawn.tokens
        return drawn


def to_next_tokens(drawn: Tensor, where: str) -> NextTokens:
    """Read the result of `draw_next`; raise CheckpointError, naming `where`, if logits are not finite."""
    require_finite(drawn[2:], "logits", where)
    return NextTokens(drawn[0].long().tolist(), drawn[1].tolist())
