"""Tokens per second of decoding the default model, beside sampling without a cache; part of `make bench`.

- no cache: the model computes its whole window for each new token, in float32
- decoder: as `gpt sample` decodes, in float32, bfloat16 and with int8 weights, one sequence and 32 in a batch
- transformers: `generate` of a GPT-2 of the same sizes, where that package is installed; it is no dependency of ours

The forms take turns within one process; figures are medians over rounds, and the ratios are what to compare between
machines. Weights are random: speed does not depend on them. Drawing is part of it in all forms.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from gpt_cli.config import ModelConfig
from gpt_cli.config.reading import read_config
from gpt_cli.model import GPT
from gpt_cli.model.device import choose_device
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import generate
from gpt_cli.sampling.next_token import SamplingParameters, choose, probabilities

VOCAB_SIZE = 4096
PROMPT = list(range(8))
# a form, and how many sequences it draws
Forms = dict[str, tuple[Callable[[], None], int]]


@torch.inference_mode()
def without_cache(model: GPT, num_tokens: int) -> None:
    """The plain loop: all that the model sees, again for each token."""
    ids = torch.tensor([PROMPT], device=model.token_embedding.weight.device)
    generator = torch.Generator().manual_seed(0)
    for _ in range(num_tokens):
        logits = model.next_logits(ids[:, -model.config.context_length :])
        uniform = torch.rand(1, generator=generator, dtype=torch.float64)
        chosen = choose(probabilities(logits.cpu(), SamplingParameters()), uniform)
        ids = torch.cat([ids, chosen[:, None].to(ids.device)], dim=1)


def with_cache(decoder: Decoder, num_tokens: int, num_samples: int) -> None:
    for _ in generate(decoder, [PROMPT], SamplingParameters(), max_new_tokens=num_tokens, num_samples=num_samples):
        pass


def transformers_forms(sizes: ModelConfig, num_tokens: int, device: torch.device) -> Forms:
    """GPT-2 in the shape of the config, sampled as its users do."""
    if importlib.util.find_spec("transformers") is None:
        return {}
    transformers: Any = importlib.import_module("transformers")
    shape = transformers.GPT2Config(
        vocab_size=VOCAB_SIZE, n_positions=sizes.context_length, n_embd=sizes.d_model, n_layer=sizes.num_blocks,
        n_head=sizes.num_heads, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip

    def form(dtype: torch.dtype, num_samples: int) -> Callable[[], None]:
        model = transformers.GPT2LMHeadModel(shape).to(device, dtype).eval()
        ids = torch.tensor([PROMPT] * num_samples, device=device)
        mask = torch.ones_like(ids)
        options = {
            "do_sample": True,
            "temperature": 0.8,
            "top_k": 0,
            "max_new_tokens": num_tokens,
            "min_new_tokens": num_tokens,
        }
        return lambda: model.generate(ids, attention_mask=mask, **options)

    return {
        "transformers, float32": (form(torch.float32, 1), 1),
        "transformers, bfloat16": (form(torch.bfloat16, 1), 1),
        "transformers, bfloat16, 32 samples": (form(torch.bfloat16, 32), 32),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="small")
    parser.add_argument("--tokens", type=int, default=100, help="new tokens of each sequence")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each form, after one to warm up")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    config = read_config(arguments.config)
    model = GPT(config.model, VOCAB_SIZE, torch.Generator().manual_seed(0)).to(device).eval()
    full, half = Decoder(model, torch.float32), Decoder(model, torch.bfloat16)
    eighth = Decoder(model, torch.bfloat16, int8=True)
    num_tokens = arguments.tokens
    forms: Forms = {
        "no cache, float32": (lambda: without_cache(model, num_tokens), 1),
        "decoder, float32": (lambda: with_cache(full, num_tokens, 1), 1),
        "decoder, bfloat16": (lambda: with_cache(half, num_tokens, 1), 1),
        "decoder, int8": (lambda: with_cache(eighth, num_tokens, 1), 1),
        "decoder, float32, 32 samples": (lambda: with_cache(full, num_tokens, 32), 32),
        "decoder, bfloat16, 32 samples": (lambda: with_cache(half, num_tokens, 32), 32),
        "decoder, int8, 32 samples": (lambda: with_cache(eighth, num_tokens, 32), 32),
        **transformers_forms(config.model, num_tokens, device),
    }
    seconds: dict[str, list[float]] = {form: [] for form in forms}
    for number in range(arguments.rounds + 1):
        for form, (run, _) in forms.items():
            started = time.perf_counter()
            run()
            if number:
                seconds[form].append(time.perf_counter() - started)
    rates = {form: forms[form][1] * num_tokens / statistics.median(found) for form, found in seconds.items()}
    print(f"config {arguments.config}, {num_tokens} tokens after {len(PROMPT)}, vocabulary of {VOCAB_SIZE}, {device}, "
          f"{torch.get_num_threads()} threads, torch {torch.__version__}, {arguments.rounds} rounds")  # fmt: skip
    slowest = rates["no cache, float32"]
    for form, rate in rates.items():
        print(f"{form:<36}{rate:>9,.1f} tokens/s{rate / slowest:>8.2f}")
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
