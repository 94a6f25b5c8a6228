"""The settings that `gpt train` chooses beside others that train for the same time, by their bits per byte.

    python -m benchmarks.auto --data plays.txt --data code.txt --seconds 60 --seconds 180

For each text and time it trains the choice, `tiny`, nanoGPT's published settings for processors (4 blocks of 4 heads,
128 wide, context 64, batches of 12, a rate of 1e-3, characters) and random settings of the kind that people try.
No clock decides: a time is a number of steps, from the time of a step of `tiny` on a quiet machine
(--step-milliseconds) and how much more or less processor time a step of other settings takes, in turns on one thread.
So a busy machine gives the same result later. With --promising 4, all random settings train for a sixth of the time,
and only the best 4 of them for the whole; the same command without it trains the others too. With --ppmd, an old
compressor (PPMd, of pyppmd) reads the training part, and then predicts evenly spaced windows of 512 bytes of the
validation part, each as if it came next; the best of several orders counts. Results go to --out,
auto.json; the same command goes on where it was stopped, and --table prints what is there. The results of
docs/benchmarks.md are in benchmarks/auto.json. All bits per byte are of the closing evaluation, on the whole validation
text, or evenly spaced windows of 4 million tokens of it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from gpt_cli.common.machine.devices import restored_threads
from gpt_cli.common.machine.memory import reuse_memory
from gpt_cli.config import Config, DataConfig
from gpt_cli.config.load import read_config, validate, write_config
from gpt_cli.errors import GptError
from gpt_cli.text.load import SourceCorpus, read_data
from gpt_cli.tools.bench.baselines import vocab_size_of
from gpt_cli.training.auto_config.choice import Budget
from gpt_cli.training.auto_config.rules import choose_settings
from gpt_cli.training.auto_config.text_statistics import TextFigures, text_figures
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import take_step

_SHARE = 1 / 6  # of the time, after which promising settings are known
PPMD_WINDOW = 512  # bytes, about as many as a model sees
NANOGPT: Mapping[str, Any] = {
    "model": {
        "context_length": 64,
        "d_model": 128,
        "num_heads": 4,
        "num_blocks": 4,
        "dropout": 0.0,
        "bias": False,
        "tie_embeddings": True,
    },
    "tokenizer": {"kind": "char"},
    "train": {"batch_size": 12, "learning_rate": 1e-3, "warmup_steps": 100, "schedule": "cosine"},
}


def random_settings(draw: random.Random) -> dict[str, Any]:
    """Settings of the kind that people try, drawn one by one."""
    width = draw.choice([64, 96, 128, 192, 256])
    optimizer = draw.choice(["adamw", "muon"])
    tokenizer = draw.choice(
        [{"kind": "char"}, *({"kind": "bpe", "vocab_size": size} for size in (512, 1024, 2048, 4096))]
    )
    return {
        "model": {
            "context_length": draw.choice([64, 128, 256]),
            "d_model": width,
            "num_heads": width // 32,
            "num_blocks": draw.choice([2, 3, 4, 6]),
            "dropout": draw.choice([0.0, 0.1, 0.2]),
            "positions": "rope",
            "activation": draw.choice(["gelu", "relu2"]),
            "bias": False,
            "ngram_embedding": draw.choice([None, None, 2, 4]),
        },
        "tokenizer": tokenizer,
        "train": {
            "batch_size": draw.choice([8, 16, 32]),
            "optimizer": optimizer,
            "learning_rate": draw.choice([1e-3, 2e-3, 4e-3, 8e-3]),
        },
    }


def candidates(corpus: SourceCorpus, seconds: float, step_seconds: float, number: int) -> dict[str, Config]:
    """The configs to compare on a text, by name."""
    text = text_figures(corpus.blocks(), corpus.num_bytes, corpus.num_characters)
    draw = random.Random(f"{corpus.digest} {seconds}")
    found = {
        "choice": choose_settings(text, Budget(seconds, step_seconds=step_seconds), {}).config,
        "tiny": read_config("tiny"),
        "nanogpt": validate(NANOGPT, "nanogpt"),
    }
    return found | {f"random {n}": validate(random_settings(draw), "random") for n in range(1, number + 1)}


def key_of(corpus: SourceCorpus, seconds: float, step_seconds: float, config: Config) -> str:
    """What names a result: all that it depends on, but not settings that came later and change nothing."""
    what = f"{corpus.digest} {seconds} {step_seconds} {config.model_dump_json(exclude_defaults=True)}"
    return hashlib.sha256(what.encode()).hexdigest()[:16]


def times_reference(config: Config, vocab_size: int, rounds: int = 6) -> float:
    """The processor time of a step, by that of a step of `tiny`."""
    return cost_ratio(config, vocab_size, read_config("tiny"), 1024, rounds)


def cost_ratio(config: Config, vocab_size: int, beside: Config, beside_vocab_size: int, rounds: int = 6) -> float:
    """The processor time of a step by that of a step of `beside`: the median of rounds in turns, on one thread."""
    states = [_state(beside, beside_vocab_size), _state(config, vocab_size)]
    ratios: list[float] = []
    for _ in range(rounds):
        began = time.process_time()
        take_step(states[0])
        between = time.process_time()
        take_step(states[1])
        ratios.append((time.process_time() - between) / (between - began))
    return median(ratios[1:])


def vocabulary(config: Config, text: TextFigures) -> int:
    """The tokens of a config's tokenizer on a text, about."""
    return text.num_distinct + 1 if config.tokenizer.kind == "char" else vocab_size_of(config)


def _state(config: Config, vocab_size: int) -> TrainingState:
    train = {"device": "cpu", "compile": "off"}
    if config.train.dtype == "auto":
        train["dtype"] = "bfloat16" if config.model.d_model >= 64 else "float32"
    ids = np.random.default_rng(0).integers(vocab_size, size=100_000, dtype=np.int32)
    return TrainingState.at_the_start(config.changed(train={**train, "max_steps": 10**6}), ids, vocab_size)


def trained(config: Config, source: str, steps: int) -> dict[str, Any]:
    """The figures of a training of so many steps."""
    often = max(1, steps // 4)
    train = {"max_steps": steps, "max_time": None, "eval_every": often, "save_every": often, "sample_every": None}
    train["warmup_steps"] = min(config.train.warmup_steps, max(1, steps // 10))
    with tempfile.TemporaryDirectory() as folder:
        path, run = Path(folder) / "config.yaml", Path(folder) / "run"
        path.write_text(write_config(config.changed(data={"source": source}, train={**train, "keep_checkpoints": 1})))
        command = [sys.executable, "-m", "gpt_cli", "train", "--config", str(path), "--out", str(run)]
        command += ["--threads", str(torch.get_num_threads()), "--quiet", "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]}
        found = json.loads(done.stdout.splitlines()[-1])
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    evaluated = [line["validation_loss"] for line in lines if line.get("validation_loss") is not None]
    return {
        "bits_per_byte": found["bits_per_byte"],
        "steps": found["steps"],
        "last_above_best": evaluated[-1] / min(evaluated) - 1,
    }


def ppmd(before: bytes, after: bytes) -> dict[str, Any]:
    """Bits per byte of windows of a text, each compressed behind the text before, with the best of several orders."""

    def bits(order: int, num_windows: int) -> float:
        spaced = np.linspace(0, max(0, len(after) - PPMD_WINDOW), num_windows).astype(int).tolist()
        windows = [after[start : start + PPMD_WINDOW] for start in dict.fromkeys(spaced)]
        alone = _compressed_size(before, order)
        added = sum(_compressed_size(before + window, order) - alone for window in windows)
        return 8 * added / sum(map(len, windows))

    best = min((4, 5, 6, 8), key=lambda order: bits(order, 8))
    return {"order": best, "bits_per_byte": bits(best, 64)}


def _compressed_size(text: bytes, order: int) -> int:
    compress = importlib.import_module("pyppmd").compress  # pip install pyppmd
    return len(compress(text, max_order=order, mem_size=256 << 20))


@dataclass
class Runs:
    """Trainings on one text for one time; each result is written to a file as soon as it is known."""

    source: str
    seconds: float
    step_seconds: float
    out: Path
    results: dict[str, Any]

    def __post_init__(self) -> None:
        self.corpus = read_data(DataConfig(source=self.source))
        self.text = text_figures(self.corpus.blocks(), self.corpus.num_bytes, self.corpus.num_characters)

    def ppmd(self) -> None:
        """Add the bits per byte of PPMd."""
        key = key_of(self.corpus, 0, 0, validate({"data": {"source": self.source}}, "ppmd"))
        if key not in self.results:
            parts = self.corpus.split(0.1)
            before, after = ("".join(block.text for block in part.blocks()).encode() for part in parts)
            self._add(key, {"text": Path(self.source).stem, "name": "PPMd"} | ppmd(before, after))

    def _add(self, key: str, result: dict[str, Any]) -> None:
        print(json.dumps(result), flush=True)
        self.results[key] = result
        lines = (f"{json.dumps(name)}: {json.dumps(each)}" for name, each in self.results.items())
        self.out.write_text("{\n" + ",\n".join(lines) + "\n}\n")

    def result(self, name: str, config: Config, share: float = 1) -> dict[str, Any]:
        """The figures of a training for a share of the time."""
        seconds = self.seconds * share
        fewer = config.train.max_steps if name == "choice" else None
        if fewer is not None:  # than there is time for
            config = config.changed(train={"max_time": None})
        key = key_of(self.corpus, seconds, self.step_seconds, config)
        if key not in self.results:
            ratio = times_reference(config, vocabulary(config, self.text))
            steps = max(20, round(seconds / self.step_seconds / ratio))
            steps = min(steps, fewer or steps)
            found = {"text": Path(self.source).stem, "seconds": self.seconds, "name": name, "ratio": ratio}
            part = {} if share == 1 else {"share": share}
            found |= part | trained(config, self.source, steps)
            if "error" in found:  # the next call tries again
                print(json.dumps(found), flush=True)
                return found
            self._add(key, found)
        return self.results[key]


def table(results: Mapping[str, Any]) -> str:
    """A row for each text and time: the choice, the best of the random settings, `tiny`, nanoGPT's, PPMd."""
    rows = [
        "| text | seconds | the choice | best of random | `tiny` | nanoGPT's | PPMd | last above best |",
        "| --- " * 8 + "|",
    ]
    groups: dict[tuple[str, float], dict[str, Any]] = {}
    shares: dict[tuple[str, float], list[dict[str, Any]]] = {}
    compressed = {result["text"]: result["bits_per_byte"] for result in results.values() if result["name"] == "PPMd"}
    for result in results.values():
        if result["name"] == "PPMd":
            continue
        row = result["text"], result["seconds"]
        if "share" in result:
            shares.setdefault(row, []).append(result)
        else:
            groups.setdefault(row, {})[result["name"]] = result
    for (text, seconds), found in sorted(groups.items()):

        def bits(name: str, found: Mapping[str, Any] = found) -> str:
            return f"{found[name]['bits_per_byte']:.3f}" if "bits_per_byte" in found.get(name, {}) else "not run"

        drawn = [one["bits_per_byte"] for name, one in found.items() if "random" in name and "bits_per_byte" in one]
        number = max(len(drawn), len(shares.get((text, seconds), [])))
        whole = "" if number == len(drawn) else f" ({len(drawn)})"
        best = f"{min(drawn):.3f} of {number}{whole}" if drawn else "not run"
        above = found.get("choice", {}).get("last_above_best")
        last = "" if above is None else f"{above:.1%}"
        rival = f"{compressed[text]:.3f}" if text in compressed else "not run"
        cells = (text, f"{seconds:g}", bits("choice"), best, bits("tiny"), bits("nanogpt"), rival, last)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


@restored_threads()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", default=[], help="a text; repeatable")
    parser.add_argument("--seconds", action="append", type=float, default=[], help="a time; repeatable; default: 60")
    parser.add_argument("--step-milliseconds", type=float, default=60.0, help="of a step of tiny on a quiet machine")
    parser.add_argument("--random", type=int, default=12, help="how many random settings")
    parser.add_argument("--promising", type=int, help="train only so many of these, the best after a sixth of the time")
    parser.add_argument("--only", action="append", help="the name of one config to train; repeatable")
    parser.add_argument("--ppmd", action="store_true", help="also compress each text by PPMd")
    parser.add_argument("--out", type=Path, default=Path("auto.json"))
    parser.add_argument("--table", action="store_true", help="print the table of what is known, and train nothing")
    arguments = parser.parse_args()
    results: dict[str, Any] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    if arguments.table:
        print(table(results))
        return
    torch.set_num_threads(1)
    reuse_memory()
    for seconds in arguments.seconds or [60.0]:
        for source in arguments.data:
            try:
                runs = Runs(source, seconds, arguments.step_milliseconds / 1000, arguments.out, results)
            except GptError as error:
                sys.exit("\n".join(error.lines()))
            if arguments.ppmd:
                runs.ppmd()
            settings = candidates(runs.corpus, seconds, runs.step_seconds, arguments.random)
            names = [name for name in settings if not arguments.only or name in arguments.only]
            if arguments.promising is not None:
                drawn = sorted(
                    (name for name in names if "random" in name),
                    key=lambda name: runs.result(name, settings[name], _SHARE).get("bits_per_byte", math.inf),
                )
                names = [name for name in names if name not in drawn[arguments.promising :]]
            for name in names:
                runs.result(name, settings[name])
    print(table(results))


if __name__ == "__main__":
    main()
