"""What `train.rank` and `train.freeze` save and cost: memory of a training, and time of a step, beside all weights.

By default a model of 124 million parameters, of the sizes of GPT-2, on sequences of 256 tokens. Steps take turns in one
process; memory is the peak of a process for each, beyond what it held before it built the model.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.laboratory import asked, finish, flags, machine, resolved, show
from gpt_cli.common.units import size
from gpt_cli.config import Config
from gpt_cli.model.costs import estimate
from gpt_cli.training.lora import num_trained
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import take_step

VOCABULARY = 50257
GPT2 = ("d_model=768", "num_heads=12", "num_blocks=12", "context_length=256", "tie_embeddings=true")


def variants(num_blocks: int) -> dict[str, dict[str, Any]]:
    """The settings to compare, by name."""
    half = num_blocks // 2
    return {
        "all weights": {},
        "rank 8": {"rank": 8},
        f"freeze {half}": {"freeze": half},
        f"freeze {half}, rank 8": {"freeze": half, "rank": 8},
        f"freeze {num_blocks - 1}": {"freeze": num_blocks - 1},
    }


def begun(config: Config) -> TrainingState:
    """A training on random tokens."""
    ids = np.random.default_rng(0).integers(VOCABULARY, size=100_000, dtype=np.int32)
    return TrainingState.at_the_start(config, ids, VOCABULARY)


def main() -> None:
    parser = flags(__doc__, config="small", rounds=5)
    parser.add_argument("--peak", help="print the peak of memory of this variant alone, in bytes")
    parser.set_defaults(set=[*(f"model.{one}" for one in GPT2), "train.batch_size=4"])
    arguments = parser.parse_args()
    config, device = resolved(asked(arguments))
    chosen = {
        name: config.changed(train={"optimizer": "adamw", **changes})
        for name, changes in variants(config.model.num_blocks).items()
    }
    if arguments.peak:
        before = _peak()
        state = begun(chosen[arguments.peak])
        for _ in range(3):
            take_step(state)
        print(_peak() - before)
        return
    states = {name: begun(settings) for name, settings in chosen.items()}
    seconds: dict[str, list[float]] = {name: [] for name in states}
    for _ in range(arguments.rounds + 1):
        for name, state in states.items():
            began = time.process_time()
            take_step(state)
            seconds[name].append(time.process_time() - began)
    medians = {name: median(each[1:]) for name, each in seconds.items()}
    states.clear()
    found = []
    for name, settings in chosen.items():
        peak = subprocess.run(
            [sys.executable, "-m", "benchmarks.low_rank", *sys.argv[1:], "--peak", name],
            check=True,
            capture_output=True,
        )
        trained = num_trained(settings, VOCABULARY)
        costs = estimate(
            settings.model,
            VOCABULARY,
            micro_batch_size=settings.train.batch_size,
            dtype=settings.train.dtype,
            num_trained=trained,
        )
        ratio = medians[name] / medians["all weights"]
        found.append(
            {
                "name": name,
                "trained": trained or costs.parameters,
                "peak": json.loads(peak.stdout),
                "estimate": costs.training_bytes,
                "seconds": medians[name],
                "ratio": ratio,
            }
        )
    rows = [
        (
            one["name"],
            f"{one['trained']:,}",
            size(one["peak"]),
            size(one["estimate"]),
            f"{one['seconds']:.2f} s",
            f"{one['ratio']:.2f}",
        )
        for one in found
    ]
    show(
        machine(device, arguments.rounds, arguments.threads),
        ("", "numbers that train", "memory", "estimate", "processor time of a step", "ratio"),
        rows,
    )
    finish(arguments, variants=found)


def _peak() -> int:
    """The most memory that this process has had, in bytes, as Linux counts it."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


if __name__ == "__main__":
    main()
