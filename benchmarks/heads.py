"""What a report on heads costs beside an evaluation of the same tokens; part of `make bench`.

The model is a fresh one of the config's sizes, since no weight changes how long its products take. A form that runs in
bfloat16 where `--dtype auto` would is compared with an evaluation in float32 as well, which is what `gpt eval` does by
default. With --cpu-time, processor seconds count instead of those of the clock: the ratios of a busy machine.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch

from gpt_cli.attention_maps.head_scores import score_heads
from gpt_cli.common.machine.devices import choose_dtype
from gpt_cli.common.machine.memory import reuse_memory
from gpt_cli.config.load import read_config
from gpt_cli.evaluation.nll import surprisals
from gpt_cli.model import GPT
from gpt_cli.text.token_files import validation_windows
from gpt_cli.tools.interpret.heads.ablation import ablate
from gpt_cli.tools.interpret.heads.circuits import composition, directions
from gpt_cli.tools.interpret.heads.max_activating import Passages

VOCAB_SIZE = 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="small")
    parser.add_argument("--tokens", type=int, default=16_384)
    parser.add_argument("--all", action="store_true", help="time --ablate mean, and zero in float32, as well")
    parser.add_argument("--cpu-time", action="store_true")
    arguments = parser.parse_args()
    reuse_memory()
    sizes = read_config(arguments.config).model
    model = GPT(sizes, VOCAB_SIZE, torch.Generator().manual_seed(0)).eval()
    ids = np.random.default_rng(0).integers(0, VOCAB_SIZE - 1, arguments.tokens + 1)
    windows = validation_windows(len(ids), sizes.context_length)
    auto = choose_dtype("auto", torch.device("cpu"), sizes.d_model)

    def evaluation() -> object:
        return [*surprisals(model, ids, stride=sizes.context_length)]

    def report() -> object:
        return score_heads(model, ids, windows, end_of_text=VOCAB_SIZE - 1)

    def with_passages() -> object:
        found = Passages(model, range(sizes.num_blocks), range(sizes.num_heads), 3)
        return score_heads(model, ids, windows, end_of_text=VOCAB_SIZE - 1, watch=found.add)

    def circuits() -> object:
        layers, heads = range(sizes.num_blocks), range(sizes.num_heads)
        composed = composition(model, layers, heads, lambda _: None)
        return [*composed, *(part for n in layers for part in directions(model, n, heads))]

    def ablation(how: str, dtype: str) -> Callable[[], object]:
        layers, heads = range(sizes.num_blocks), range(sizes.num_heads)
        return lambda: ablate(model, ids, windows, how=how, layers=layers, heads=heads, dtype=dtype)

    forms = {"report": report, "--passages 3": with_passages, "--circuits": circuits} | {
        f"--ablate {how}, {auto}": ablation(how, auto) for how in ("layer", "zero")
    }
    if arguments.all:
        forms[f"--ablate mean, {auto}"] = ablation("mean", auto)
        forms["--ablate zero, float32"] = ablation("zero", "float32")
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    rows = []
    for name, run in forms.items():
        # the evaluation before and after, because a machine may become slower meanwhile
        before, own, after = (_seconds(form, clock) for form in (evaluation, run, evaluation))
        rows.append({"form": name, "seconds": own, "evaluation": (before + after) / 2})
        rows[-1]["ratio"] = rows[-1]["seconds"] / rows[-1]["evaluation"]
        print(f"{name:24} {own:8.2f} s {rows[-1]['ratio']:6.2f} times an evaluation", flush=True)
    print(json.dumps({"config": arguments.config, "tokens": arguments.tokens, "rows": rows}))


def _seconds(run: Callable[[], object], clock: Callable[[], float]) -> float:
    started = clock()
    run()
    return clock() - started


if __name__ == "__main__":
    main()
