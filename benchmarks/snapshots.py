"""What snapshots of attention cost beside training, at the period of a config; part of `make bench`.

It takes steps of a real training in turns with snapshots, each of which is computed, written and synced as a run does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from gpt_cli.attention_maps.snapshots import snapshot_bytes
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.config.load import read_config
from gpt_cli.text.encode import encode_corpus
from gpt_cli.text.load import read_data
from gpt_cli.training.attention_snapshots import take_snapshot
from gpt_cli.training.memory_checks import resolve
from gpt_cli.training.run import Run
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import take_step

PROMPT = "The value of the first list is the value of the second list."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="small")
    parser.add_argument("--prompt", help="default: that of the config, or a sentence of English")
    parser.add_argument("--rounds", type=int, default=9, help="timed steps and snapshots, after one of each to warm up")
    arguments = parser.parse_args()
    prompt = arguments.prompt or read_config(arguments.config).inspect.prompt or PROMPT
    config = read_config(arguments.config, flags={"inspect.prompt": ("--prompt", prompt)})
    config = resolve(config, print)
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        text = encode_corpus(read_data(config.data), config)
        state = TrainingState.at_the_start(config, text.ids, text.tokenizer.vocab_size)
        run = Run(state, RunDirectory(Path(folder)), text.tokenizer, text.validation_ids)
        run.open_directory()
        seconds: dict[str, list[float]] = {"step": [], "snapshot": []}
        for _ in range(arguments.rounds + 1):
            started = time.perf_counter()
            take_step(state)
            stepped = time.perf_counter()
            run.directory.add_snapshot(run.progress.step, snapshot_bytes(take_snapshot(run, state.model)))
            ended = time.perf_counter()
            seconds["step"].append(stepped - started)
            seconds["snapshot"].append(ended - stepped)
        size = run.directory.snapshot_file(run.progress.step).stat().st_size
    medians = {name: statistics.median(found[1:]) for name, found in seconds.items()}
    training = config.inspect.every * medians["step"]
    share = medians["snapshot"] / (training + medians["snapshot"])
    print(
        f"config {arguments.config}: step {medians['step']:.3f} s, snapshot {medians['snapshot']:.3f} s "
        f"({size / 1e3:.0f} kB); every {config.inspect.every} steps that is {share:.2%} of the time"
    )
    print(json.dumps(medians | {"share": share, "bytes": size}))


if __name__ == "__main__":
    main()
