"""Whether settings gain on a text at equal time: `python -m benchmarks.learning --data FILE --try KEY=VALUE`.

    python -m benchmarks.learning --data plays.txt --data code.txt --try model.qk_norm=true \\
        --try 'model.activation=swiglu train.learning_rate=5e-3'

The base is what `gpt train` chooses for the text and --seconds, or --config, with --set on either. Each --try is one
setting or several on top of it. If a step of a try takes 1.1 times the processor time of a step of the base, in turns
on one thread, the try gets 1 / 1.1 of the steps. No clock decides, so a busy machine gives the same losses later.
Bits per byte are of the closing evaluation. A change is that of a try from the base with the same seed: the mean over
--seeds and its standard error. Results go to --out, learning.json; the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from benchmarks.auto import cost_ratio, times_reference, trained, vocabulary
from gpt_cli.common.machine.devices import restored_threads
from gpt_cli.common.machine.memory import reuse_memory
from gpt_cli.common.tables import table
from gpt_cli.config import Config, DataConfig
from gpt_cli.config.load import build_config, read_config
from gpt_cli.config.strict_yaml import Document
from gpt_cli.errors import GptError, UsageError
from gpt_cli.text.load import read_data
from gpt_cli.training.auto_config.choice import Budget
from gpt_cli.training.auto_config.rules import choose_settings
from gpt_cli.training.auto_config.text_statistics import TextFigures, text_figures

BASE = "base"
# settings that the benchmark gives every training
_DECIDED = {f"train.{key}" for key in ("max_steps", "max_time", "eval_every", "save_every", "sample_every", "seed")}


def base_of(text: TextFigures, arguments: argparse.Namespace) -> tuple[Config, int | None]:
    """The config that a text is tried with, and how many steps it takes, where that needs no measuring."""
    step_seconds = arguments.step_milliseconds / 1000
    if arguments.config is None:
        fixed = build_config(Document({}), "--set", arguments.set, to_choose=True).model_dump(exclude_unset=True)
        choice = choose_settings(text, Budget(arguments.seconds, step_seconds=step_seconds), fixed)
        return choice.config, choice.num_steps
    return read_config(arguments.config, arguments.set), None


def steps_of(base: Config, text: TextFigures, arguments: argparse.Namespace) -> int:
    """The steps that a config takes in the time, measured beside `tiny`."""
    ratio = times_reference(base, vocabulary(base, text))
    return round(arguments.seconds / (arguments.step_milliseconds / 1000) / ratio)


def tries(base: Config, asked: Iterable[str]) -> dict[str, Config]:
    """The base and each try, by what it sets; raises UsageError for settings that do not exist or have no effect."""

    def over(one: str) -> Config:
        if fixed := {word.split("=")[0] for word in one.split()} & _DECIDED:
            raise UsageError(f"--try {one}", f"{min(fixed)} is decided by the benchmark, so that all have equal time")
        return build_config(Document(base.model_dump(exclude_unset=True)), one, one.split())

    return {BASE: base} | {one: over(one) for one in asked}


def changes(results: Iterable[Mapping[str, Any]], name: str, text: str) -> list[float]:
    """By how much a try differs from the base on a text, as a share, for each seed that both have."""
    bits = {(one["name"], one["seed"]): one["bits_per_byte"] for one in results if one["text"] == text}
    pairs = [(found, bits.get((BASE, seed))) for (other, seed), found in bits.items() if other == name]
    return [found / of_base - 1 for found, of_base in pairs if of_base]


def summary(results: Iterable[Mapping[str, Any]]) -> str:
    """A row for each try and text: the cost of a step, the mean bits per byte, the mean change with its error."""
    results = list(results)
    rows = [("try", "text", "seeds", "cost of a step", "bits per byte", "change")]
    for name, text in dict.fromkeys((one["name"], one["text"]) for one in results):
        found = [one for one in results if (one["name"], one["text"]) == (name, text)]
        cost, bits = (mean(one[key] for one in found) for key in ("cost", "bits_per_byte"))
        by_seed = [] if name == BASE else changes(results, name, text)
        error = f" ± {stdev(by_seed) / math.sqrt(len(by_seed)):.2%}" if len(by_seed) > 1 else ""
        change = f"{mean(by_seed):+.2%}{error}" if by_seed else ""
        rows.append((name, text, str(len(found)), f"{cost:.2f}", f"{bits:.4f}", change))
    return table(rows)


@restored_threads()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", required=True, help="a text; repeatable")
    parser.add_argument("--try", action="append", default=[], dest="asked", metavar="KEY=VALUE", help="repeatable")
    parser.add_argument("--config", metavar="FILE", help="default: what gpt train chooses")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the base; repeatable")
    parser.add_argument("--seconds", type=float, default=30.0, help="of training on a quiet machine; default: 30")
    parser.add_argument("--step-milliseconds", type=float, default=60.0, help="of a step of tiny on a quiet machine")
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
    parser.add_argument("--out", type=Path, default=Path("learning.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    reuse_memory()
    results: dict[str, Any] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    mine: list[str] = []
    try:
        for source in arguments.data:
            corpus = read_data(DataConfig(source=source))
            text = text_figures(corpus.blocks(), corpus.num_bytes, corpus.num_characters)
            base, steps = base_of(text, arguments)
            for name, config in tries(base, arguments.asked).items():
                length = f"{arguments.seconds} {arguments.step_milliseconds}"
                what = f"{corpus.digest} {length} {base.model_dump_json()} {config.model_dump_json()}"
                keys = [hashlib.sha256(f"{what} {seed}".encode()).hexdigest()[:16] for seed in range(arguments.seeds)]
                mine += keys
                known = next((results[key] for key in keys if key in results), None)  # all seeds take as many steps
                if name == BASE:
                    steps = known["steps"] if known else steps or steps_of(base, text, arguments)
                if all(key in results for key in keys):
                    continue
                cost = 1.0
                if known is not None:
                    cost = known["cost"]
                elif name != BASE:
                    cost = cost_ratio(config, vocabulary(config, text), base, vocabulary(base, text), rounds=15)
                assert steps is not None, "the base comes first"
                for seed, key in enumerate(keys):
                    if key not in results:
                        found = trained(config.changed(train={"seed": seed}), source, max(1, round(steps / cost)))
                        found = {"text": Path(source).stem, "name": name, "seed": seed, "cost": cost} | found
                        print(json.dumps(found), flush=True)
                        if "error" not in found:  # the next call tries again
                            results[key] = found
                            arguments.out.write_text(json.dumps(results, indent=1))
    except GptError as error:
        sys.exit("\n".join(error.lines()))
    print(summary(results[key] for key in mine if key in results))


if __name__ == "__main__":
    main()
