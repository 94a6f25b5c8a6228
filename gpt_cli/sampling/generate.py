"""Generate new tokens, one after another."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gpt_cli.common.host import Notify, ignored
from gpt_cli.common.machine.devices import supports
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.next_token import CpuDraws, Draw, SamplingParameters, Uniforms
from gpt_cli.sampling.recorded import TRIAL_TOKENS, recorded_draws


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
    warn: Notify = ignored,
) -> Iterator[list[Draw | None]]:
    """Continue prompts of 1 to context_length ids: each step yields a Draw for each row, None for rows that have ended.

    The rows are the samples of the first prompt, then of the second, and so on. A row ends at end_of_text, which is not
    yielded, or before a step for which `done(row index)` is true. Sample i of a prompt draws from random stream i of
    the seed, whatever else is in the batch. From the fifth step on, a GPU may replay a CUDA graph of a step; `warn`
    receives the reason if a trial of it fails. Raises CheckpointError if logits are not finite.
    """
    rows = [prompt for prompt in prompts for _ in range(num_samples)]
    ended = [False] * len(rows)
    uniforms = Uniforms(seed, num_samples, len(prompts))
    cpu_draws = CpuDraws(decoder, rows, parameters, uniforms, max_new_tokens)
    draws: Iterator[list[Draw]] = iter(cpu_draws.next, None)
    trial = 2  # the step from which a graph is tried
    for step in range(max_new_tokens):
        left = max_new_tokens - step
        trial += step == trial and decoder.is_full(1)
        pays = step == trial and left > TRIAL_TOKENS
        if pays and supports(decoder.device, "graphs") and supports(decoder.device, "float64"):
            draws = recorded_draws(cpu_draws, left, warn)
        drawn = next(draws)
        ended = [was or draw.token == end_of_text for was, draw in zip(ended, drawn, strict=True)]
        if all(ended):
            return
        yield [None if end else draw for end, draw in zip(ended, drawn, strict=True)]
        ended = [end or done(number) for number, end in enumerate(ended)]
        if all(ended):
            return


def continuations(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    parameters: SamplingParameters,
    *,
    num_samples: int = 1,
    count: Callable[[int], object] = lambda _: None,
    **options: Any,
) -> list[list[int]]:
    """Return each sample's new ids, first prompt first; after each step, call `count(1)`, which may raise."""
    rows: list[list[int]] = [[] for _ in range(len(prompts) * num_samples)]
    for draws in generate(decoder, prompts, parameters, num_samples=num_samples, **options):
        count(1)
        for row, draw in zip(rows, draws, strict=True):
            row += [draw.token] if draw else []
    return rows
