"""Batches of ids that only the disk has, beside the step that waits for them; `python -m benchmarks.corpus` shows them.

Before each reading the system forgets the files, so that nothing is fetched from memory. gpt's batch is announced as a
step before announces it, and that step takes PAUSE; then it is read, and the next one announced.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpt_cli.common.machine.devices import to_device
from gpt_cli.config.load import read_config
from gpt_cli.text.token_files import chunks, open_tokens
from gpt_cli.training.batches import Batches, PackedBatches, batches_of
from gpt_cli.training.setup import resolve
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import take_step

BATCHES = 10  # for each round
PAUSE = 0.02  # seconds, far less than a step of the default model on a CPU
MOST_IN_MEMORY = 2**26  # tokens


def read_batches(directory: Path, folder: Path, config_name: str, rounds: int) -> dict[str, float]:
    """Median seconds of a step of a config (`step`), and of its batch in each form."""
    tokens = open_tokens(directory)
    assert tokens is not None
    config = resolve(read_config(config_name), lambda _: None)
    device = torch.device(config.train.device)
    length = config.model.context_length + 1
    on_disk, in_memory = (batches_of(ids, config, device) for ids in (tokens, tokens[:MOST_IN_MEMORY]))
    assert isinstance(on_disk, Batches)
    one_file = folder / "ids.bin"
    with one_file.open("wb") as file:
        for ids in chunks(tokens):
            file.write(ids.tobytes())
        os.fsync(file.fileno())  # the system forgets only what is on the disk
    files = [*directory.glob("part-*"), one_file]

    def of(batches: Batches | PackedBatches) -> Callable[[int], Tensor]:
        return lambda step: batches.windows(to_device(torch.from_numpy(batches.numbers(step)), device))[0]

    def mapped(step: int) -> Tensor:
        ids = np.memmap(one_file, tokens.dtype, "r")
        windows = ids[on_disk.starts(step)[:, None] + np.arange(length)]
        return torch.from_numpy(windows.astype(np.int64))

    seconds: dict[str, list[float]] = {}

    def clock(form: str, batch: Callable[[int], Any], step: int) -> Any:
        started = time.perf_counter()
        found = batch(step)
        seconds.setdefault(form, []).append(time.perf_counter() - started)
        return found

    for step in range(BATCHES * rounds):
        _forget(files)
        windows = clock("np.memmap", mapped, step)
        _forget(files)
        clock("gpt, not announced", of(on_disk), step)
        _forget(files)
        tokens.announce(on_disk.starts(step), length)
        time.sleep(PAUSE)
        inputs = clock("gpt", of(on_disk), step)
        clock("ids in memory", of(in_memory), step)
        torch.testing.assert_close(windows[:, :-1], inputs, rtol=0, atol=0)
    state = TrainingState.at_the_start(config, tokens[:MOST_IN_MEMORY], config.tokenizer.vocab_size)
    for _ in range(rounds + 1):
        clock("step", lambda _: take_step(state), 0)
    del seconds["step"][0]  # it warms up
    return {form: statistics.median(found) for form, found in seconds.items()}


def _forget(files: list[Path]) -> None:
    """Let the system's memory of these files go."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
