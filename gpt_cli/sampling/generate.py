"""Generate new tokens, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gpt_cli.common.rng import stream_key
from gpt_cli.model.gpt import require_finite
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.next_token import SamplingParameters, draw_token, probabilities

_DRAWN_AHEAD = 256  # steps


@dataclass(frozen=True)
class Draw:
    """A drawn token, and its log-probability under the model itself, before temperature and other parameters."""

    token: int
    log_probability: float  # nats


def generate(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    parameters: SamplingParameters,
    *,
    max_new_tokens: int,
    num_samples: int = 1,
    seed: int = 0,
    end_of_text: int | None = None,
    done: Callable[[int], bool] = lambda row: False,
    where: str = "checkpoint",
) -> Iterator[list[Draw | None]]:
    """Continue prompts of 1 to context_length ids: each step yields a Draw for each row, None for rows that have ended.

    The rows are the samples of the first prompt, then of the second, and so on. A row ends at end_of_text, which is not
    yielded, or before a step for which `done(row index)` is true. Sample i of a prompt draws from random stream i of
    the seed, whatever else is in the batch; `stream_key` says how probable it is that two streams are the same. Raises
    CheckpointError, naming `where`, if logits are not finite.
    """
    generators = [torch.Generator().manual_seed(stream_key(seed, "sample", i)) for i in range(num_samples)]
    rows = [prompt for prompt in prompts for _ in range(num_samples)]
    ended, chosen = [False] * len(rows), [0] * len(rows)
    uniforms = torch.empty(0)  # of the samples in the next steps: [samples, steps]
    logits = decoder.prefill(rows)
    seen = torch.zeros(logits.shape, dtype=torch.bool)
    for number, prompt in enumerate(rows):
        seen[number, list(prompt)] = True
    for step in range(max_new_tokens):
        if step:
            logits = decoder.decode(chosen)
        if step % _DRAWN_AHEAD == 0:
            uniforms = torch.stack([torch.rand(_DRAWN_AHEAD, generator=g, dtype=torch.float64) for g in generators])
        logits = logits.cpu()
        require_finite(logits, "logits", where)
        uniform = uniforms[:, step % _DRAWN_AHEAD].repeat(len(prompts))
        picked = draw_token(probabilities(logits, parameters, seen), uniform)
        log_probabilities = logits.double().log_softmax(dim=-1).gather(-1, picked[:, None])[:, 0].tolist()
        chosen = picked.tolist()
        seen[torch.arange(len(rows)), picked] = True
        ended = [was or token == end_of_text for was, token in zip(ended, chosen, strict=True)]
        if all(ended):
            return
        yield [None if end else Draw(*draw) for end, *draw in zip(ended, chosen, log_probabilities, strict=True)]
        ended = [end or done(number) for number, end in enumerate(ended)]
        if all(ended):
            return


def continuations(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    parameters: SamplingParameters,
    *,
    num_samples: int = 1,
    watch: Callable[[], object] = lambda: None,
    **options: Any,
) -> list[list[int]]:
    """Return the token ids that `generate` draws for each row; `watch` is called after each step, and may raise."""
    rows: list[list[int]] = [[] for _ in range(len(prompts) * num_samples)]
    for draws in generate(decoder, prompts, parameters, num_samples=num_samples, **options):
        watch()
        for row, draw in zip(rows, draws, strict=True):
            row += [draw.token] if draw else []
    return rows
