"""What saving costs beside training, at the intervals of a config; part of `make bench`.

It takes steps of a real training and saves in a folder of its own below the working directory, on the disk that a run
would use. Saving includes fsync, both digests, and the best weights beside the checkpoint.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from gpt_cli.checkpoints.checkpoint import save_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.config.load import read_config
from gpt_cli.text.encode import encode_corpus
from gpt_cli.text.load import read_data
from gpt_cli.training.memory_checks import resolve
from gpt_cli.training.run import Run
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import take_step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="small")
    parser.add_argument("--rounds", type=int, default=5, help="timed steps and saves, after one of each to warm up")
    arguments = parser.parse_args()
    config = resolve(read_config(arguments.config), print)
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        text = encode_corpus(read_data(config.data), config)
        state = TrainingState.at_the_start(config, text.ids, text.tokenizer.vocab_size)
        run = Run(state, RunDirectory(Path(folder)), text.tokenizer, text.validation_ids)
        run.open_directory()
        seconds: dict[str, list[float]] = {"step": [], "checkpoint": [], "best": []}
        for _ in range(arguments.rounds + 1):
            started = time.perf_counter()
            take_step(state)
            stepped = time.perf_counter()
            run.save()
            saved = time.perf_counter()
            save_checkpoint(run.directory.best, run.checkpoint(with_moments=False))
            ended = time.perf_counter()
            for name, found in zip(seconds, (stepped - started, saved - stepped, ended - saved), strict=True):
                seconds[name].append(found)
        medians = {name: statistics.median(found[1:]) for name, found in seconds.items()}
        size = run.directory.step_file(run.progress.step).stat().st_size
    tensors = 3 * 4 * state.num_parameters
    every = config.train.save_every
    training = every * medians["step"]
    saving = medians["checkpoint"] + medians["best"]
    print(
        f"config {arguments.config}: step {medians['step']:.3f} s, checkpoint {medians['checkpoint']:.3f} s "
        f"({size / 1e6:.0f} MB, {size / tensors:.4f} of its tensors), best {medians['best']:.3f} s"
    )
    print(f"saving every {every} steps takes {saving / (training + saving):.2%} of the time")
    print(json.dumps(medians | {"share": saving / (training + saving), "bytes_per_tensor_byte": size / tensors}))


if __name__ == "__main__":
    main()
