"""One optimizer step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from gpt_cli.machine.devices import autocast
from gpt_cli.model.dropout import DropMasks
from gpt_cli.training.evaluation import cross_entropy
from gpt_cli.training.schedule import rate_share
from gpt_cli.training.state import Outcome, TrainingState


class Diverged(Exception):  # noqa: N818 - the loop makes an error for users of it
    """The loss of a step or its gradient is not finite; without a gradient norm, the validation loss after it.

    A loss of None says that the logits of a sample are not finite.
    """

    def __init__(
        self, step: int, loss: float | None, gradient_norm: float | None = None, learning_rate: float | None = None
    ) -> None:
        super().__init__(step, loss, gradient_norm, learning_rate)
        self.step, self.loss = step, loss
        self.gradient_norm, self.learning_rate = gradient_norm, learning_rate


def take_step(state: TrainingState, watch: Callable[[], object] = lambda: None) -> None:
    """Compute a gradient, change the weights, and count the step in the state's progress.

    `watch` is called between micro-batches; when it raises, the state is as before. On a CPU the outcome is read at
    once, so that Diverged leaves the weights untouched; a GPU computes while the next steps are prepared, and its
    outcomes wait for `read_outcomes`.
    """
    started, elapsed = time.perf_counter(), state.elapsed()
    settings, step = state.config.train, state.progress.step
    try:
        loss = compute_gradient(state, step, watch)
        limit = math.inf if settings.gradient_clip is None else settings.gradient_clip
        norm = torch.nn.utils.clip_grad_norm_(state.model.parameters(), limit)
        share = rate_share(step, settings, elapsed)
        state.unread.append(Outcome(step + 1, torch.stack((loss, norm)), settings.learning_rate * share))
        if state.reads_at_once:
            _read(state)
        state.optimizer.step(share)
    finally:
        state.optimizer.zero_grad()
    seconds = state.progress.seconds + time.perf_counter() - started
    state.progress = replace(state.progress, step=step + 1, elapsed=state.elapsed(), seconds=seconds)


def read_outcomes(state: TrainingState) -> None:
    """Wait for the steps taken, so that the progress holds the last one's loss and all seconds.

    Raises Diverged for the first whose loss or gradient norm is not finite. Call it before using the weights.
    """
    if state.unread:
        started = time.perf_counter()
        _read(state)
        seconds = state.progress.seconds + time.perf_counter() - started
        state.progress = replace(state.progress, elapsed=state.elapsed(), seconds=seconds)


def _read(state: TrainingState) -> None:
    outcomes, state.unread = state.unread, []
    for outcome, (loss, norm) in zip(outcomes, torch.stack([o.loss_and_norm for o in outcomes]).tolist(), strict=True):
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise Diverged(outcome.step, loss, norm, outcome.learning_rate)
        state.progress = replace(state.progress, loss=loss, gradient_norm=norm, learning_rate=outcome.learning_rate)


def compute_gradient(state: TrainingState, step: int, watch: Callable[[], object] = lambda: None) -> Tensor:
    """Add the gradient of a step's batch to the parameters, micro-batch by micro-batch; returns the mean loss."""
    settings = state.config.train
    inputs, targets = state.batches(step)
    micro = settings.sequences_at_once
    total = torch.zeros((), device=state.device)
    for first in range(0, settings.batch_size, micro):
        watch()
        masks = DropMasks(state.config.model.dropout, settings.seed, step, first_sequence=first)
        with autocast(state.device, settings.dtype):
            logits = state.model(inputs[first : first + micro], masks)
            loss = cross_entropy(logits, targets[first : first + micro]) * (micro / settings.batch_size)
        loss.backward()
        total += loss.detach()
    return total


def time_step(state: TrainingState) -> float:
    """Seconds that a step's gradient takes, measured on the next batch; leaves the training as it was."""
    seconds = 0.0
    for _ in range(2):  # the first one also warms up
        started = time.perf_counter()
        try:
            compute_gradient(state, state.progress.step).item()
        finally:
            state.optimizer.zero_grad()
        seconds = time.perf_counter() - started
    return seconds
