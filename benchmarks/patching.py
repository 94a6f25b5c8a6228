"""What `gpt patch` costs beside forward passes of the same prompts, in turns in one process; part of `make bench`.

The model is a fresh one of the config's sizes, since no weight changes how long its products take. Each pair differs
from a token on that is drawn among all but the first and the last. With --cpu-time, processor seconds count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from gpt_cli.common.machine.memory import reuse_memory
from gpt_cli.config.load import read_config
from gpt_cli.model import GPT
from gpt_cli.tools.interpret.patching.activation_patching import Task, Unit, estimated, exact, record, units
from gpt_cli.tools.interpret.patching.request import PARTS

VOCAB_SIZE = 4096
PASSES = 5  # forward passes of a prompt before its patches, and as many after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="small")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--cpu-time", action="store_true")
    arguments = parser.parse_args()
    reuse_memory()
    generator = torch.Generator().manual_seed(0)
    sizes = read_config(arguments.config).model
    model = GPT(sizes, VOCAB_SIZE, generator).eval()
    layers, places = range(sizes.num_blocks), [None, *range(arguments.tokens)]
    heads, every = (units(parts, range(sizes.num_heads)) for parts in (["head"], PARTS))
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    ratios: dict[str, list[float]] = {"heads": [], "all parts": [], "estimates of all parts": []}
    for _ in range(arguments.pairs):
        clean = torch.randint(VOCAB_SIZE - 1, (arguments.tokens,), generator=generator)
        first = int(torch.randint(1, arguments.tokens - 1, (), generator=generator))
        corrupt = clean.clone()
        corrupt[first] = (clean[first] + 1) % VOCAB_SIZE
        task = Task(clean, corrupt, first, 0, 1)

        def patches(chosen: list[Unit], task: Task = task) -> None:
            with torch.no_grad():
                both = record(model, task.clean), record(model, task.corrupt)
            exact(model, *both, task, layers, chosen, places)

        def estimates(task: Task = task) -> None:
            with torch.no_grad():
                own = record(model, task.clean)
            estimated(model, own, task, layers, every, places)

        def passes(clean: torch.Tensor = clean) -> None:
            with torch.inference_mode():
                for _ in range(PASSES):
                    model(clean[None])

        for name, run in zip(ratios, (partial(patches, heads), partial(patches, every), estimates), strict=True):
            before, own, after = (_seconds(each, clock) for each in (passes, run, passes))
            ratios[name].append(own / (before + after) * 2 * PASSES)
    for name, found in ratios.items():
        print(
            f"{name:24} {statistics.mean(found):7.1f} forward passes a pair, from {min(found):.1f} to {max(found):.1f}"
        )
    means = {name: statistics.mean(found) for name, found in ratios.items()}
    print(json.dumps({"config": arguments.config, "pairs": arguments.pairs, "tokens": arguments.tokens, **means}))


def _seconds(run: Callable[[], object], clock: Callable[[], float]) -> float:
    started = clock()
    run()
    return clock() - started


if __name__ == "__main__":
    main()
