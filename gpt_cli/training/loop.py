"""The training loop: a generator of reports that computes, evaluates and saves, and never prints."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gpt_cli.checkpoints.checkpoint import read_checkpoint, save_checkpoint
from gpt_cli.errors import DivergedError
from gpt_cli.model.device import autocast
from gpt_cli.model.dropout import DropMasks
from gpt_cli.sampling.generate import generate
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.text.tokens import validation_windows
from gpt_cli.training.evaluation import Evaluation, cross_entropy, evaluate
from gpt_cli.training.schedule import learning_rate
from gpt_cli.training.session import Session

SAMPLE_PROMPT_TOKENS = 16
SAMPLE_NEW_TOKENS = 64


@dataclass(frozen=True)
class Stepped:
    """A step is done; `logged` when it was written to metrics.jsonl."""

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    logged: bool


@dataclass(frozen=True)
class Evaluated:
    """The validation loss was measured on `eval_tokens` tokens."""

    step: int
    evaluation: Evaluation
    best: bool


@dataclass(frozen=True)
class Sampled:
    """The model continued the beginning of the validation text."""

    step: int
    prompt: str
    text: str


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written."""

    step: int
    path: Path


@dataclass(frozen=True)
class Finished:
    """The end, with the figures of `gpt train --json`; `signal` is the number of the one that stopped it."""

    summary: dict[str, Any]
    signal: int | None


Report = Stepped | Evaluated | Sampled | Saved | Finished


def train(
    session: Session,
    stop: Callable[[], int | None] = lambda: None,
    progress: Callable[[int], object] = lambda _: None,
) -> Iterator[Report]:
    """Train to max_steps, patience or a signal, from wherever the session is.

    Nothing runs until the reports are taken. `stop` is asked after each step and gives the number of a signal
    that arrived; then the state is saved and training ends. `progress` is told tokens of the closing evaluation.
    Raises DivergedError before a non-finite loss or gradient reaches the weights, EnvironmentFailure when a
    file cannot be written.
    """
    settings = session.config.train
    signal = None
    since_tokens, since_seconds = 0, 0.0
    loss = math.nan
    while session.progress.step < settings.max_steps and not _out_of_patience(session) and signal is None:
        started = time.perf_counter()
        loss, norm = take_step(session)
        seconds = time.perf_counter() - started
        step = session.progress.step + 1
        session.progress = replace(session.progress, step=step, seconds=session.progress.seconds + seconds)
        since_tokens, since_seconds = since_tokens + session.tokens_per_step, since_seconds + seconds

        evaluated = None
        if step == settings.max_steps or step % settings.eval_every == 0:
            evaluated = _evaluate(session)
            yield evaluated
        last = step == settings.max_steps or _out_of_patience(session)
        # what a signal stops is due just as without it, so that the resumed run leaves the same files
        signal = stop()
        logged = last or evaluated is not None or step % settings.log_every == 0
        stepped = Stepped(step, loss, learning_rate(step - 1, settings), norm, since_tokens / since_seconds, logged)
        if logged:
            session.directory.append(session.directory.metrics, _metrics_line(session, stepped, evaluated))
            since_tokens, since_seconds = 0, 0.0
        yield stepped
        if last or (settings.sample_every and step % settings.sample_every == 0):
            yield _sample(session)
        if evaluated and evaluated.best:
            save_checkpoint(session.directory.best, session.checkpoint(with_moments=False))
        if last or signal is not None or step % settings.save_every == 0:
            session.directory.save(session.checkpoint(with_moments=True), settings.keep_checkpoints)
            yield Saved(step, session.directory.step_file(step))
    closing = None
    if signal is None:
        closing, signal = _closing_evaluation(session, stop, progress)
    yield Finished(_summary(session, loss, closing, signal), signal)


def _out_of_patience(session: Session) -> bool:
    """Whether as many evaluations as `train.patience` allows have brought no new best."""
    patience = session.config.train.patience
    return patience is not None and session.progress.evaluations_without_best >= patience


def take_step(session: Session) -> tuple[float, float]:
    """One optimizer step: the mean loss of its batch in nats per token, and the norm of its gradient.

    Raises DivergedError, with the weights untouched, when either is not finite.
    """
    settings, step = session.config.train, session.progress.step
    loss = compute_gradient(session, step)
    limit = math.inf if settings.gradient_clip is None else settings.gradient_clip
    norm = float(torch.nn.utils.clip_grad_norm_(session.model.parameters(), limit))
    rate = learning_rate(step, settings)
    if not (math.isfinite(loss) and math.isfinite(norm)):
        wrong = f"the loss is {loss:g} and the gradient norm {norm:g} at learning rate {rate:g}"
        raise DivergedError(f"step {step + 1}", wrong, _intact(session), hint=_lower(session))
    for group in session.optimizer.param_groups:
        group["lr"] = rate
    session.optimizer.step()
    session.optimizer.zero_grad()
    return loss, norm


def _intact(session: Session) -> str:
    saved = session.directory.steps()
    return f"the checkpoint of step {max(saved)} is intact" if saved else "nothing was saved yet"


def _lower(session: Session) -> str:
    rate = session.config.train.learning_rate / 3
    return f"start anew with --overwrite and --set train.learning_rate={rate:.1g}, or with --dtype float32"


def compute_gradient(session: Session, step: int) -> float:
    """Add the gradient of a step's batch to the parameters, micro-batch by micro-batch; returns the mean loss."""
    settings = session.config.train
    inputs, targets = (torch.from_numpy(part).to(session.device) for part in session.batches(step))
    micro = settings.micro_batch_size or settings.batch_size
    total = torch.zeros((), device=session.device)
    for first in range(0, settings.batch_size, micro):
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


def _evaluate(session: Session) -> Evaluated:
    """Measure the validation loss on evenly spaced windows and keep count of the best."""
    settings, progress = session.config.train, session.progress
    windows = validation_windows(len(session.validation_ids), session.config.model.context_length, settings.eval_tokens)
    evaluation = evaluate(
        session.model, session.tokenizer, session.validation_ids, windows,
        batch_size=settings.batch_size, dtype=settings.dtype,
    )  # fmt: skip
    if not math.isfinite(evaluation.loss):
        wrong = f"the validation loss is {evaluation.loss:g}"
        raise DivergedError(f"step {progress.step}", wrong, _intact(session), hint=_lower(session))
    best = progress.best_loss is None or evaluation.loss < progress.best_loss
    session.progress = replace(
        progress,
        best_loss=evaluation.loss if best else progress.best_loss,
        evaluations_without_best=0 if best else progress.evaluations_without_best + 1,
    )
    return Evaluated(progress.step, evaluation, best)


def _sample(session: Session) -> Sampled:
    """Continue the beginning of the validation text, and add it to samples.txt."""
    step, tokenizer = session.progress.step, session.tokenizer
    prompt = session.validation_ids[:SAMPLE_PROMPT_TOKENS].astype(int).tolist()
    session.model.eval()
    tokens = generate(
        session.model, prompt, SamplingParameters(), max_new_tokens=SAMPLE_NEW_TOKENS,
        seed=session.config.train.seed, end_of_text=tokenizer.end_of_text, dtype=session.config.train.dtype,
    )  # fmt: skip
    text = tokenizer.decode(token for (token,) in tokens if token is not None)
    session.model.train()
    sampled = Sampled(step, tokenizer.decode(prompt), text)
    session.directory.append(session.directory.samples, f"=== step {step} ===\n{sampled.prompt}{sampled.text}\n")
    return sampled


def _metrics_line(session: Session, stepped: Stepped, evaluated: Evaluated | None) -> str:
    line: dict[str, Any] = {
        "step": stepped.step,
        "tokens": stepped.step * session.tokens_per_step,
        "seconds": round(session.progress.seconds, 3),
        "loss": stepped.loss,
        "learning_rate": stepped.learning_rate,
        "gradient_norm": stepped.gradient_norm,
        "tokens_per_second": round(stepped.tokens_per_second, 1),
    }
    if evaluated:
        line["validation_loss"] = evaluated.evaluation.loss
        line["validation_tokens"] = evaluated.evaluation.num_tokens
        line["bits_per_byte"] = evaluated.evaluation.bits_per_byte
    return json.dumps(line) + "\n"


class _StoppedError(Exception):
    """A signal arrived in the closing evaluation."""


def _closing_evaluation(
    session: Session, stop: Callable[[], int | None], progress: Callable[[int], object]
) -> tuple[Evaluation | None, int | None]:
    """The loss of the best weights on the whole validation text, and the signal that cut it short.

    Everything is saved by now, so a signal loses nothing but this figure.
    """

    def watch(num_tokens: int) -> None:
        progress(num_tokens)
        if stop() is not None:
            raise _StoppedError

    settings, model = session.config.train, session.model
    if session.directory.best.exists():
        model = read_checkpoint(session.directory.best).build_model().to(session.device)
    windows = validation_windows(len(session.validation_ids), session.config.model.context_length)
    try:
        watch(0)
        closing = evaluate(
            model, session.tokenizer, session.validation_ids, windows,
            batch_size=settings.batch_size, dtype=settings.dtype, progress=watch,
        )  # fmt: skip
    except _StoppedError:
        return None, stop()
    return closing, None


def _summary(session: Session, loss: float, closing: Evaluation | None, signal: int | None) -> dict[str, Any]:
    """The closing figures; those of the closing evaluation are None where a signal hurried."""
    settings = session.config.train
    early = session.progress.step < settings.max_steps
    reason = "signal" if signal is not None else "patience" if early else "steps"
    steps, seconds = session.progress.step, session.progress.seconds
    return {
        "run": str(session.directory.path),
        "steps": steps,
        "tokens": steps * session.tokens_per_step,
        "seconds": round(seconds, 3),
        "loss": None if math.isnan(loss) else loss,
        "validation_loss": closing and closing.loss,
        "bits_per_byte": closing and closing.bits_per_byte,
        "tokens_per_second": round(steps * session.tokens_per_step / seconds, 1) if seconds else None,
        "parameters": sum(parameter.numel() for parameter in session.model.parameters()),
        "device": settings.device,
        "dtype": settings.dtype,
        "stopped_by": reason,
    }
