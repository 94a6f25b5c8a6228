"""Seconds of one dropout mask for attention weights, keyed beside torch's; `python -m benchmarks.dropout`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from gpt_cli.model.dropout import DropMasks, drop_out

SHAPE = (16, 8, 128, 128)  # batch, heads, queries, keys of the default model
ROUNDS = 20


def main() -> None:
    weights = torch.rand(SHAPE)
    forms: dict[str, Callable[[int], object]] = {
        "torch": lambda _: F.dropout(weights, 0.1),
        "keyed": lambda step: drop_out(
            weights, DropMasks(0.1, 0, step).to_draw().keep("weights", SHAPE, weights.device), 0.1
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    for step in range(ROUNDS + 1):
        for name, form in forms.items():
            started = time.perf_counter()
            form(step)
            if step:
                seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    for name, median in medians.items():
        print(f"{name:<6} {median * 1e3:7.2f} ms  ratio {medians['torch'] / median:5.2f}")


if __name__ == "__main__":
    main()
