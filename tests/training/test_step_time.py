"""The choice whether micro-batches share casts of weights, on a simulated device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from support.accelerator import Accelerator
from support.helpers import small_config
from support.simulated_graph import give_graphs

from gpt_cli.common.host import Host
from gpt_cli.model import GPT
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step_time import time_steps


@pytest.mark.parametrize(
    ("device", "micro_batch", "seconds", "shared_at_all", "shares"),
    [
        ("sim", 2, -0.5, True, True),
        ("sim", 2, 0.5, True, False),
        ("sim", 8, 0.5, False, True),
        ("cpu", 2, 0.5, True, True),
    ],
    ids=["faster", "slower", "one micro-batch", "a processor"],
)
def test_micro_batches_share_weights_unless_an_accelerator_is_slower_by_it(
    accelerator: Accelerator,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    micro_batch: int,
    seconds: float,
    shared_at_all: bool,
    shares: bool,
) -> None:
    """By the clock, a gradient takes 1 s without sharing, and `seconds` more with it."""
    give_graphs(accelerator)
    now, shared, num_shared = [0.0], GPT.shared_matrices, [0]

    @contextmanager
    def timed(model: GPT, *dtype: object) -> Iterator[None]:
        now[0] += seconds
        num_shared[0] += 1
        with shared(model):
            yield

    def read() -> float:
        now[0] += 1
        return now[0]

    monkeypatch.setattr(time, "perf_counter", read)
    monkeypatch.setattr(GPT, "shared_matrices", timed)
    config = small_config("train.batch_size=8", f"train.micro_batch_size={micro_batch}", "train.compile=off")
    state = TrainingState.at_the_start(config.changed(train={"device": device}), np.arange(2000) % 257, 257)
    time_steps(state, Host(warn=pytest.fail), may_compile=False, must_compile=False)
    assert state.shares_matrices == shares
    assert bool(num_shared[0]) == shared_at_all
