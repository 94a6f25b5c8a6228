"""Time a training step of the model REFERENCE on this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from gpt_cli.common.host import ignored
from gpt_cli.common.machine.devices import choose_device, choose_dtype
from gpt_cli.config import Config, ModelConfig
from gpt_cli.training.auto_config.model_sizes import (
    REFERENCE,
    REFERENCE_BATCH,
    REFERENCE_COST,
    REFERENCE_TOKENS,
    REFERENCE_VOCABULARY,
    cost_of,
)
from gpt_cli.training.cuda_graphs import record_step
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import read_outcomes, take_step

SECONDS = 1.5  # of measuring, on a device that takes several steps in that time
_QUICK = 0.01  # a step that takes less keeps a GPU waiting for its next operation
# sixty times the arithmetic of the reference, for devices that are quick
_LARGE = REFERENCE.changed(d_model=768, num_heads=12, num_blocks=6)


def seconds_of(configs: Sequence[Config]) -> list[float]:
    """Estimate the training time of each config on this machine, in seconds, at most its max_time.

    The measured time of a step of the model REFERENCE is scaled by the costs that `cost_of` estimates.
    """
    reference, estimates = reference_seconds(configs[0]), list[float]()
    for config in configs:
        model, train = config.model, config.train
        cost = cost_of(model.d_model, model.num_blocks, config.tokenizer.vocab_size, model.feed_forward_size)
        # a forward pass is about a third of a step
        evaluated = train.eval_tokens / train.eval_every / 3
        tokens = (train.max_steps or math.inf) * (config.tokens_per_step + evaluated)
        seconds = tokens / REFERENCE_TOKENS * cost / REFERENCE_COST * reference
        estimates.append(min(seconds, train.max_time or seconds))
    return estimates


def reference_seconds(config: Config) -> float:
    """Return the shortest of several steps of REFERENCE, in seconds, with the device and dtype of `config.train`.

    The minimum changes little if another program briefly keeps the machine busy. On a fast device, a larger model is
    timed too; its time, scaled down to the computation of REFERENCE, is returned if it is shorter.
    """
    seconds = _timed(REFERENCE, config)
    if seconds < _QUICK:
        times = (_LARGE.num_blocks * _LARGE.d_model**2) / (REFERENCE.num_blocks * REFERENCE.d_model**2)
        seconds = min(seconds, _timed(_LARGE, config) / times)
    return seconds


def _timed(model: ModelConfig, config: Config) -> float:
    settings = config.train
    device = choose_device(settings.device)
    dtype = choose_dtype(settings.dtype, device, model.d_model)
    of_steps = {"batch_size": REFERENCE_BATCH, "graph": settings.graph, "compile": "off"}
    ids = np.random.default_rng(0).integers(REFERENCE_VOCABULARY, size=50_000, dtype=np.int32)
    timing_config = Config(model=model).changed(train={"device": str(device), "dtype": dtype, **of_steps})
    state = TrainingState.at_the_start(timing_config, ids, REFERENCE_VOCABULARY)
    record_step(state, ignored)  # without it, the time of Python would hide that of a GPU
    times: list[float] = []
    began = time.perf_counter()
    while not times or (time.perf_counter() - began < SECONDS and len(times) < 30):
        started = time.perf_counter()
        take_step(state)
        read_outcomes(state)
        times.append(time.perf_counter() - started)
    return min(times)
