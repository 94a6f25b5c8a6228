"""One optimizer step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from gpt_cli.errors import DivergedError
from gpt_cli.model.device import autocast
from gpt_cli.model.dropout import DropMasks
from gpt_cli.training.evaluation import cross_entropy
from gpt_cli.training.schedule import rate_share
from gpt_cli.training.session import Session
from gpt_cli.training.stopping import intact, lower


def take_step(session: Session, watch: Callable[[], object] = lambda: None) -> None:
    """Compute a gradient, change the weights, and count the step in the session's progress.

    `watch` is called between micro-batches; when it raises, the session is as before. Raises DivergedError, with
    the weights untouched, when the loss or the norm of the gradient is not finite.
    """
    started, elapsed = time.perf_counter(), session.elapsed()
    settings, step = session.config.train, session.progress.step
    try:
        loss = compute_gradient(session, step, watch)
        limit = math.inf if settings.gradient_clip is None else settings.gradient_clip
        norm = float(torch.nn.utils.clip_grad_norm_(session.model.parameters(), limit))
        share = rate_share(step, settings, elapsed)
        rate = settings.learning_rate * share
        if not (math.isfinite(loss) and math.isfinite(norm)):
            wrong = f"the loss is {loss:g} and the gradient norm {norm:g} at learning rate {rate:g}"
            raise DivergedError(f"step {step + 1}", wrong, intact(session), hint=lower(session))
        session.optimizer.step(share)
    finally:
        session.optimizer.zero_grad()
    session.progress = replace(
        session.progress,
        step=step + 1,
        loss=loss,
        gradient_norm=norm,
        learning_rate=rate,
        elapsed=session.elapsed(),
        seconds=session.progress.seconds + time.perf_counter() - started,
    )


def compute_gradient(session: Session, step: int, watch: Callable[[], object] = lambda: None) -> float:
    """Add the gradient of a step's batch to the parameters, micro-batch by micro-batch; returns the mean loss."""
    settings = session.config.train
    inputs, targets = (torch.from_numpy(part).to(session.device) for part in session.batches(step))
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
    return float(total)


def time_step(session: Session) -> float:
    """Seconds that a step's gradient takes, measured on the next batch; leaves the training as it was."""
    seconds = 0.0
    for _ in range(2):  # the first one also warms up
        started = time.perf_counter()
        compute_gradient(session, session.progress.step)
        seconds = time.perf_counter() - started
        session.optimizer.zero_grad()
    return seconds
