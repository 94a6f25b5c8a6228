"""What is due after a step besides saving: evaluation, a line of metrics, a sample.

All is computed first, and only then written and counted, so that a stop in between leaves nothing half done.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpt_cli.checkpoints.checkpoint import save_checkpoint
from gpt_cli.errors import DivergedError
from gpt_cli.files import append
from gpt_cli.machine import product_dtype
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import continuations
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.text.tokens import validation_windows
from gpt_cli.training.evaluation import Evaluation, evaluate
from gpt_cli.training.reports import Evaluated, Report, Sampled, Stepped
from gpt_cli.training.schedule import is_over
from gpt_cli.training.session import Session
from gpt_cli.training.step import read_outcomes
from gpt_cli.training.stopping import intact, lower

SAMPLE_PROMPT_TOKENS = 16
SAMPLE_NEW_TOKENS = 64


@dataclass
class Pace:
    """How far the training was at the last line of metrics, or where this part of the run began."""

    step: int
    seconds: float

    def tokens_per_second(self, session: Session) -> float:
        """Since then."""
        steps, seconds = session.progress.step - self.step, session.progress.seconds - self.seconds
        # a run that continues at a step whose evaluation was cut short has trained nothing yet
        if not steps:
            steps, seconds = session.progress.step, session.progress.seconds
        return steps * session.tokens_per_step / seconds


def observe(session: Session, pace: Pace, watch: Callable[..., object] = lambda *_: None) -> Iterator[Report]:
    """Do what is due after the session's last step; reports what was done, after all of it is written.

    `watch` is called between batches and tokens; when it raises, nothing has changed. Raises DivergedError when
    the validation loss, or what the steps before came to, is not finite.
    """
    settings, step = session.config.train, session.progress.step
    evaluation = sampled = None
    logging, evaluating = step % settings.log_every == 0, step % settings.eval_every == 0
    sampling = settings.sample_every is not None and step % settings.sample_every == 0
    if logging or evaluating or sampling or is_over(session.progress, settings):
        read_outcomes(session)
    before = session.progress
    progress = replace(before, observed_step=step)
    last = is_over(before, settings)  # the wait may have taken the rest of max_time
    if last or evaluating:
        evaluation = _evaluate(session, watch)
        best = before.best_loss is None or evaluation.loss < before.best_loss
        progress = replace(
            progress,
            best_loss=evaluation.loss if best else before.best_loss,
            evaluations_without_best=0 if best else before.evaluations_without_best + 1,
            evaluated_step=step,
        )
    last = last or out_of_patience(session, progress.evaluations_without_best)
    if last or sampling:
        sampled = _sample(session, watch)

    session.progress = progress
    logged = last or evaluating or logging
    stepped = _stepped(session, pace, logged)
    if logged:
        append(session.directory.metrics, _metrics_line(session, stepped, evaluation))
        pace.step, pace.seconds = step, progress.seconds
    if sampled:
        session.directory.add_sample(step, sampled.prompt + sampled.text)
    if evaluation and progress.evaluations_without_best == 0:
        save_checkpoint(session.directory.best, session.checkpoint(with_moments=False))

    if evaluation:
        yield Evaluated(step, evaluation, progress.evaluations_without_best == 0)
    yield stepped
    if sampled:
        yield sampled


def _stepped(session: Session, pace: Pace, logged: bool) -> Stepped:
    progress = session.progress
    if session.unread:
        return Stepped(progress.step, None, None, None, None, logged)
    rate = pace.tokens_per_second(session)
    return Stepped(progress.step, progress.loss, progress.learning_rate, progress.gradient_norm, rate, logged)


def out_of_patience(session: Session, evaluations_without_best: int) -> bool:
    """Whether as many evaluations as `train.patience` allows have brought no new best."""
    patience = session.config.train.patience
    return patience is not None and evaluations_without_best >= patience


def _evaluate(session: Session, watch: Callable[..., object]) -> Evaluation:
    """The validation loss on evenly spaced windows."""
    settings = session.config.train
    windows = validation_windows(len(session.validation_ids), session.config.model.context_length, settings.eval_tokens)
    try:
        evaluation = evaluate(
            session.model, session.tokenizer, session.validation_ids, windows,
            batch_size=settings.batch_size, dtype=settings.dtype, progress=watch,
        )  # fmt: skip
    finally:
        session.model.train()
    if not math.isfinite(evaluation.loss):
        wrong = f"the validation loss is {evaluation.loss:g}"
        raise DivergedError(f"step {session.progress.step}", wrong, intact(session), hint=lower(session))
    return evaluation


def _sample(session: Session, watch: Callable[..., object]) -> Sampled:
    """Continue the beginning of the validation text."""
    tokenizer, dtype = session.tokenizer, session.config.train.dtype
    prompt = session.validation_ids[:SAMPLE_PROMPT_TOKENS].astype(int).tolist()
    (tokens,) = continuations(
        Decoder(session.model, product_dtype(dtype)), [prompt[-session.config.model.context_length :]],
        SamplingParameters(), max_new_tokens=SAMPLE_NEW_TOKENS, seed=session.config.train.seed,
        end_of_text=tokenizer.end_of_text, watch=watch,
    )  # fmt: skip
    return Sampled(session.progress.step, tokenizer.decode(prompt), tokenizer.decode(tokens))


def _metrics_line(session: Session, stepped: Stepped, evaluation: Evaluation | None) -> str:
    assert stepped.tokens_per_second is not None
    line: dict[str, Any] = {
        "step": stepped.step,
        "tokens": stepped.step * session.tokens_per_step,
        "seconds": round(session.progress.seconds, 3),
        "loss": stepped.loss,
        "learning_rate": stepped.learning_rate,
        "gradient_norm": stepped.gradient_norm,
        "tokens_per_second": round(stepped.tokens_per_second, 1),
    }
    if evaluation:
        line["validation_loss"] = evaluation.loss
        line["validation_tokens"] = evaluation.num_tokens
        line["bits_per_byte"] = evaluation.bits_per_byte
    return json.dumps(line) + "\n"
