"""Tokens per second of the default model, beside the same model in two plainer forms; `make bench`.

- separate: each head by itself, float32, dropout drawn by torch: the model as its classes read
- plain: the fused twin, float32, dropout drawn by torch
- trained: as `gpt train` runs it on this machine, with the dtype that auto chooses and keyed dropout

The forms take turns within one process, so that a machine that slows down slows all of them; figures are
medians over rounds, and the ratios are what to compare between machines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch

from gpt_cli.config.reading import read_config
from gpt_cli.model import GPT
from gpt_cli.model.device import autocast, choose_device, choose_dtype
from gpt_cli.model.dropout import DropMasks
from gpt_cli.training.evaluation import cross_entropy
from gpt_cli.training.optimizer import make_optimizer

VOCAB_SIZE = 4096


def make_step(form: str, config_name: str, device: torch.device) -> tuple[Callable[[int], None], str]:
    """A function that takes one whole training step of the form, and the dtype that it uses."""
    config = read_config(config_name)
    generator = torch.Generator().manual_seed(0)
    model = GPT(config.model, VOCAB_SIZE, generator).to(device).train().use_fused(form != "separate")
    optimizer = make_optimizer(model, config.train)
    dtype = choose_dtype("auto", device, config.model.d_model) if form == "trained" else "float32"
    shape = (config.train.batch_size, config.model.context_length + 1)
    ids = torch.randint(VOCAB_SIZE, shape, generator=generator).to(device)

    def step(number: int) -> None:
        masks = DropMasks(config.model.dropout, 0, number) if form == "trained" else None
        with autocast(device, dtype):
            loss = cross_entropy(model(ids[:, :-1], masks), ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.train.gradient_clip or float("inf"))
        optimizer.step(1.0)
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return step, dtype


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="small")
    parser.add_argument("--rounds", type=int, default=5, help="timed steps of each form, after one to warm up")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    config = read_config(arguments.config)
    tokens = config.train.batch_size * config.model.context_length
    steps = {form: make_step(form, arguments.config, device) for form in ("separate", "plain", "trained")}
    seconds: dict[str, list[float]] = {form: [] for form in steps}
    for number in range(arguments.rounds + 1):
        for form, (step, _) in steps.items():
            started = time.perf_counter()
            step(number)
            if number:
                seconds[form].append(time.perf_counter() - started)
    medians = {form: statistics.median(found) for form, found in seconds.items()}
    print(f"config {arguments.config}, batch of {tokens} tokens, vocabulary of {VOCAB_SIZE}, {device}, "
          f"{torch.get_num_threads()} threads, torch {torch.__version__}, {arguments.rounds} rounds")  # fmt: skip
    print(f"{'form':<10}{'dtype':<10}{'s/step':>8}{'min':>8}{'max':>8}{'tokens/s':>10}{'ratio':>7}")
    for form, median in medians.items():
        print(
            f"{form:<10}{steps[form][1]:<10}{median:>8.3f}{min(seconds[form]):>8.3f}{max(seconds[form]):>8.3f}"
            f"{tokens / median:>10,.0f}{medians['separate'] / median:>7.2f}"
        )
    print(json.dumps({form: round(tokens / median, 1) for form, median in medians.items()}))


if __name__ == "__main__":
    main()
