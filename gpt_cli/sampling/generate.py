"""New tokens, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from gpt_cli.model import GPT
from gpt_cli.model.device import autocast
from gpt_cli.sampling.next_token import SamplingParameters, choose, probabilities
from gpt_cli.streams import stream_key


def generate(
    model: GPT,
    prompt: Sequence[int],
    parameters: SamplingParameters,
    *,
    max_new_tokens: int,
    num_samples: int = 1,
    seed: int = 0,
    end_of_text: int | None = None,
    dtype: str = "float32",
) -> Iterator[list[int | None]]:
    """Continue a prompt: yields the next id of each sample, None for one that has met end_of_text.

    Past context_length the model sees the last context_length tokens. Every sample draws from a stream of
    its own, so it does not depend on how many there are.
    """
    device = model.token_embedding.weight.device
    generators = [torch.Generator().manual_seed(stream_key(seed, "sample", i)) for i in range(num_samples)]
    ids = torch.tensor([list(prompt)] * num_samples, device=device)
    ended = [False] * num_samples
    for _ in range(max_new_tokens):
        uniform = torch.cat([torch.rand(1, generator=generator, dtype=torch.float64) for generator in generators])
        # the mode is entered for each token, because a context held over a yield leaks to the caller
        with torch.inference_mode(), autocast(device, dtype):
            logits = model.next_logits(ids[:, -model.config.context_length :])
        chosen = choose(probabilities(logits, parameters), uniform.to(device))
        ids = torch.cat([ids, chosen[:, None]], dim=1)
        ended = [was or token == end_of_text for was, token in zip(ended, chosen.tolist(), strict=True)]
        if all(ended):
            return
        yield [None if end else token for end, token in zip(ended, chosen.tolist(), strict=True)]
