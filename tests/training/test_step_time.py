"""The choice whether micro-batches share casts of weights, on a simulated device."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from support.accelerator import Accelerator
from support.helpers import small_config
from support.simulated_graph import give_graphs

from gpt_cli.common.host import Host
from gpt_cli.model import GPT
from gpt_cli.training import step_time
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step_time import time_steps


@pytest.mark.parametrize(
    ("device", "micro_batch", "seconds", "more", "num_steps", "shares"),
    [
        ("sim", 2, 0.9, 0.0, 10**6, True),
        ("sim", 2, 1.1, 0.0, 10**6, False),
        ("sim", 2, 0.9, 0.01, 10**6, False),
        ("sim", 2, None, 0.0, 10**6, False),
        ("sim", 2, 0.9, math.inf, 10**6, False),
        ("sim", 4, 0.9, 0.0, 10**6, False),
        ("sim", 2, 0.9, 0.0, 3, False),
        ("cpu", 2, 1.1, 0.0, 3, True),
    ],
    ids=[
        *("faster", "slower", "wrong", "never as a graph", "too little memory", "one micro-batch"),
        *("less than twenty seconds", "a processor"),
    ],
)
def test_micro_batches_share_weights_unless_an_accelerator_shows_that_it_is_slower_or_wrong(
    accelerator: Accelerator,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    micro_batch: int,
    seconds: float | None,
    more: float,
    num_steps: int,
    shares: bool,
) -> None:
    """A graph of a step takes 1 s without sharing, and `seconds` with it; sharing adds `more` to weights."""
    give_graphs(accelerator)
    shared = GPT.shared_matrices

    @contextmanager
    def scaled(model: GPT, *dtype: object) -> Iterator[None]:
        if more == math.inf:
            raise RuntimeError("out of memory")
        with shared(model):
            for block in model.blocks:
                assert block.attention.shared_weights is not None
                weight, bias = block.attention.shared_weights
                block.attention.shared_weights = weight + more, bias
            yield

    monkeypatch.setattr(GPT, "shared_matrices", scaled)
    monkeypatch.setattr(step_time, "record_step", lambda state, _: seconds if state.shares_matrices else 1.0)
    settings = f"train.micro_batch_size={micro_batch}", f"train.max_steps={num_steps}"
    config = small_config("model.num_blocks=1", "train.compile=off", *settings)
    state = TrainingState.at_the_start(config.changed(train={"device": device}), np.arange(2000) % 257, 257)
    time_steps(state, Host(warn=pytest.fail), may_compile=False, must_compile=False)
    assert state.shares_matrices == shares
