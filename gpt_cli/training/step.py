"""One optimizer step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from gpt_cli.errors import DivergedError
from gpt_cli.machine import autocast
from gpt_cli.model.dropout import DropMasks
from gpt_cli.training.evaluation import cross_entropy
from gpt_cli.training.schedule import rate_share
from gpt_cli.training.session import Outcome, Session
from gpt_cli.training.stopping import intact, lower


def take_step(session: Session, watch: Callable[[], object] = lambda: None) -> None:
    """Compute a gradient, change the weights, and count the step in the session's progress.

    `watch` is called between micro-batches; when it raises, the session is as before. A CPU's outcome is read at
    once, so that DivergedError leaves the weights untouched; that of a GPU, which works on while the next steps are
    prepared, when `read_outcomes` is called.
    """
    started, elapsed = time.perf_counter(), session.elapsed()
    settings, step = session.config.train, session.progress.step
    try:
        loss = compute_gradient(session, step, watch)
        limit = math.inf if settings.gradient_clip is None else settings.gradient_clip
        norm = torch.nn.utils.clip_grad_norm_(session.model.parameters(), limit)
        share = rate_share(step, settings, elapsed)
        session.unread.append(Outcome(step + 1, torch.stack((loss, norm)), settings.learning_rate * share))
        if session.reads_at_once:
            _read(session)
        session.optimizer.step(share)
    finally:
        session.optimizer.zero_grad()
    seconds = session.progress.seconds + time.perf_counter() - started
    session.progress = replace(session.progress, step=step + 1, elapsed=session.elapsed(), seconds=seconds)


def read_outcomes(session: Session) -> None:
    """Wait until the steps taken are computed, so that the progress tells the last one's loss and all seconds.

    Raises DivergedError when the loss or the norm of the gradient of one of them is not finite. Whoever uses the
    weights calls this first.
    """
    if session.unread:
        started = time.perf_counter()
        _read(session)
        seconds = session.progress.seconds + time.perf_counter() - started
        session.progress = replace(session.progress, elapsed=session.elapsed(), seconds=seconds)


def _read(session: Session) -> None:
    outcomes, session.unread = session.unread, []
    for outcome, (loss, norm) in zip(outcomes, torch.stack([o.loss_and_norm for o in outcomes]).tolist(), strict=True):
        rate = outcome.learning_rate
        if not (math.isfinite(loss) and math.isfinite(norm)):
            wrong = f"the loss is {loss:g} and the gradient norm {norm:g} at learning rate {rate:g}"
            raise DivergedError(f"step {outcome.step}", wrong, intact(session), hint=lower(session))
        session.progress = replace(session.progress, loss=loss, gradient_norm=norm, learning_rate=rate)


def compute_gradient(session: Session, step: int, watch: Callable[[], object] = lambda: None) -> Tensor:
    """Add the gradient of a step's batch to the parameters, micro-batch by micro-batch; returns the mean loss."""
    settings = session.config.train
    inputs, targets = session.batches(step)
    micro = settings.micro_batch_size or settings.batch_size
    total = torch.zeros((), device=session.device)
    for first in range(0, settings.batch_size, micro):
        watch()
        masks = DropMasks(session.config.model.dropout, settings.seed, step, first_sequence=first)
        with autocast(session.device, settings.dtype):
            logits = session.model(inputs[first : first + micro], masks)
            loss = cross_entropy(logits, targets[first : first + micro]) * (micro / settings.batch_size)
        loss.backward()
        total += loss.detach()
    return total


def time_step(session: Session) -> float:
    """Seconds that a step's gradient takes, measured on the next batch; leaves the training as it was."""
    seconds = 0.0
    for _ in range(2):  # the first one also warms up
        started = time.perf_counter()
        try:
            compute_gradient(session, session.progress.step).item()
        finally:
            session.optimizer.zero_grad()
        seconds = time.perf_counter() - started
    return seconds
