"""One optimizer step: gradient, clipping, update of the weights, and checks of the result."""

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpt_cli.checkpoints.metrics_files import smoothed
from gpt_cli.common.machine.devices import autocast, product_dtype, to_device
from gpt_cli.distributed.collectives import tree_sum
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.model.dropout import DropMasks, drop_keys, key_halves
from gpt_cli.training.intervals import settings_of_model
from gpt_cli.training.lr_schedule import lr_multiplier
from gpt_cli.training.state import Outcome, TrainingState
from gpt_cli.training.validation import cross_entropy


class StepInputs(NamedTuple):
    """A step's inputs: each micro-batch by its index, as rows of `Batches.numbers` on the device, and dropout keys."""

    micro_batches: Mapping[int, Tensor]
    keys: np.ndarray | Tensor


def send(state: TrainingState, step: int) -> StepInputs:
    """Return a step's inputs: this rank's micro-batches, copied to the device, and the keys of its dropout masks."""
    settings, micro = state.config.train, state.config.train.sequences_at_once
    micro_batches = state.layout.micro_batches(settings.num_micro_batches)
    sequences = np.arange(settings.batch_size).reshape(-1, micro)[micro_batches].ravel()
    numbers = to_device(torch.from_numpy(state.batches.numbers(step, sequences)), state.device)
    keys = drop_keys(settings.seed, step, state.config.model.num_blocks)
    # compiled blocks draw their masks by keys on the device
    if settings.compile == "on" and state.config.model.dropout and state.device.type != "cpu":
        keys = key_halves(to_device(torch.from_numpy(keys.view(np.int64)), state.device))
    return StepInputs(dict(zip(micro_batches, numbers.split(micro), strict=True)), keys)


class Diverged(Exception):  # noqa: N818 - the loop makes an error for users of it
    """Raised if the loss or gradient norm of a step, the validation loss, or other numbers are not finite."""

    def __init__(self, step: int, sentence: str) -> None:
        super().__init__(step, sentence)  # both, so that another rank can rebuild it
        self.step, self.sentence = step, sentence


def take_step(state: TrainingState, watch: Callable[[], object] = lambda: None) -> None:
    """Compute the gradient, update the weights, and count the step in `state.progress`.

    `watch` is called between micro-batches; if it raises, the state is unchanged. On a CPU the loss is read at once, so
    that Diverged leaves the weights untouched. On a GPU the function may return before the step is computed, and
    `read_outcomes` reads the loss later.
    """
    started, elapsed = time.perf_counter(), state.elapsed()
    settings, step = state.config.train, state.progress.step
    progress, of_model = state.progress, settings_of_model(state.progress, settings)
    multiplier = lr_multiplier(step - progress.model_step, of_model, elapsed - progress.model_elapsed)
    rate = settings.learning_rate * multiplier
    try:
        if state.whole_step is not None:
            state.unread.append(Outcome(step + 1, state.whole_step(step, multiplier, watch), rate))
        else:
            state.unread.append(Outcome(step + 1, clipped_gradient(state, send(state, step), watch), rate))
            if state.reads_at_once:
                _read(state)
            state.optimizer.step(multiplier)
            state.layout.share_weights()
    finally:
        state.optimizer.zero_grad()
    state.update_average()
    _take_time(state, started)
    state.progress = replace(state.progress, step=step + 1)
    if state.reads_at_once:
        _require_equal_weights(state)


def read_outcomes(state: TrainingState) -> None:
    """Wait for all steps taken so far; store the last loss and all training seconds in `state.progress`.

    Raises Diverged for the first step whose loss or gradient norm is not finite. Call this before using the weights.
    """
    if state.unread:
        started = time.perf_counter()
        _read(state)
        _take_time(state, started)
        _require_equal_weights(state)


def _read(state: TrainingState) -> None:
    unread, state.unread = state.unread, []
    numbers = torch.stack([outcome.loss_and_norm for outcome in unread]).tolist()
    for (step, _, rate), (loss, norm) in zip(unread, numbers, strict=True):
        if not (math.isfinite(loss) and math.isfinite(norm)):
            sentence = f"the loss is {loss:g} and the gradient norm is {norm:g} at learning rate {rate:g}"
            raise Diverged(step, sentence)
        mean = smoothed(state.progress.smoothed_loss, loss, step - state.progress.model_step)
        state.progress = replace(state.progress, loss=loss, smoothed_loss=mean, gradient_norm=norm, learning_rate=rate)


def _take_time(state: TrainingState, started: float) -> None:
    """Add the seconds since `started` to `progress.seconds`, the training seconds."""
    (seconds,) = state.ranks.broadcast(state.progress.seconds + time.perf_counter() - started)
    state.progress = replace(state.progress, elapsed=state.elapsed(), seconds=seconds)


def _require_equal_weights(state: TrainingState) -> None:
    """Raise EnvironmentFailure if the sums of the weights or the gradient norms differ between ranks."""
    if state.ranks.size == 1:
        return
    if state.ranks.any_differ(state.layout.check_sum(), state.progress.gradient_norm or 0.0):
        sentence = "the processes have different weights, so this machine or gpt has a fault"
        raise EnvironmentFailure(f"step {state.progress.step:,}", sentence)


def clipped_gradient(state: TrainingState, sent: StepInputs, watch: Callable[[], object] = lambda: None) -> Tensor:
    """Set .grad of owned parameters, clipped; return [loss, norm before clipping]; `watch`: see `take_step`."""
    losses = compute_gradient(state, sent, watch)
    # the same on all ranks
    merged = state.ranks.all_reduce_exact(torch.cat((losses, state.layout.gradient_norms())))
    of_micro_batches, of_parameters = merged.split((len(losses), len(merged) - len(losses)))
    loss, norm = tree_sum(of_micro_batches.unbind()), torch.linalg.vector_norm(of_parameters)
    limit = state.config.train.gradient_clip
    torch.nn.utils.clip_grads_with_norm_(state.layout.owned.values(), math.inf if limit is None else limit, norm)
    return torch.stack((loss, norm))


def compute_gradient(state: TrainingState, sent: StepInputs, watch: Callable[[], object] = lambda: None) -> Tensor:
    """Compute the gradient of a step for the parameters that this rank owns; return each micro-batch's loss [N].

    The loss of a micro-batch is its share of the batch's mean, or zero if another rank computes it. Gradients are
    summed in the order of `distributed.collectives.tree_sum`, first within a rank, then between ranks.
    """
    losses = torch.zeros(state.config.train.num_micro_batches, device=state.device)
    micro_batches, dtype = [*sent.micro_batches], state.config.train.dtype
    # weights are cast once for all micro-batches; torch 2.10 would later reuse a cast that was made without gradients
    with autocast(state.device, dtype, enabled=False), contextlib.ExitStack() as stack:
        if len(micro_batches) > 1 and state.shares_matrices:
            stack.enter_context(state.model.shared_matrices(None if dtype == "float32" else product_dtype(dtype)))
        _add_up(state, sent, losses, micro_batches, watch)
    state.layout.sum_gradients()
    return losses


def _add_up(
    state: TrainingState, sent: StepInputs, losses: Tensor, micro_batches: Sequence[int], watch: Callable[[], object]
) -> None:
    """Add the gradients of `micro_batches` to the parameters' gradients; write each loss to its index in `losses`."""
    # autograd adds gradients in order, as `tree_sum` adds two terms or an odd number of terms
    if len(micro_batches) % 2 or len(micro_batches) == 2:
        for micro_batch in micro_batches:
            watch()
            losses[micro_batch] = _compute_micro_batch(state, sent, micro_batch)
        return
    half = len(micro_batches) // 2
    _add_up(state, sent, losses, micro_batches[:half], watch)
    before = state.layout.take_gradients()
    _add_up(state, sent, losses, micro_batches[half:], watch)
    state.layout.add_gradients(before)


def _compute_micro_batch(state: TrainingState, sent: StepInputs, micro_batch: int) -> Tensor:
    """Add the gradient of one micro-batch to the parameters' gradients; return its share of the batch's mean loss."""
    settings, micro = state.config.train, state.config.train.sequences_at_once
    inputs, targets, positions, num_targets = state.batches.windows(sent.micro_batches[micro_batch])
    masks = DropMasks(sent.keys, micro_batch * micro, state.config.model.dropout)
    with autocast(state.device, settings.dtype):
        if num_targets is None:
            loss = state.cross_entropy(state.model(inputs, masks), targets) * (micro / settings.batch_size)
        else:  # a micro-batch with longer answers counts more
            loss = cross_entropy(state.model(inputs, masks, positions), targets, reduction="sum") / num_targets
    loss.backward()
    return loss.detach()


def time_step(state: TrainingState) -> float:
    """Return the seconds of computing a gradient, measured on the next batch; the training state does not change."""
    seconds = 0.0
    for _ in range(2):  # the first one also warms up
        started = time.perf_counter()
        try:
            compute_gradient(state, send(state, state.progress.step)).sum().item()
        finally:
            state.optimizer.zero_grad()
        seconds = time.perf_counter() - started
    return seconds
