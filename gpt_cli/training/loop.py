"""The training loop: a generator of reports that computes, evaluates and saves, and never prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.text.tokens import validation_windows
from gpt_cli.training.evaluation import Evaluation, evaluate
from gpt_cli.training.observation import Pace, observe, out_of_patience
from gpt_cli.training.reports import Finished, Report, Saved
from gpt_cli.training.schedule import is_over
from gpt_cli.training.session import Session
from gpt_cli.training.step import read_outcomes, take_step
from gpt_cli.training.stopping import Stop, StopAsked, intact, watcher


def train(
    session: Session,
    stop: Stop = lambda: None,
    progress: Callable[[int], object] = lambda _: None,
    save_asked: Callable[[], bool] = lambda: False,
) -> Iterator[Report]:
    """Train to max_steps, max_time, patience or a signal, from wherever the session is.

    Nothing runs until the reports are taken. `stop` gives the number of a signal that arrived; it is asked between
    micro-batches, batches of an evaluation and sampled tokens. Then what is unfinished is dropped, to be done again
    by the run that continues, the state is saved, and training ends. `save_asked` is asked after each step and lets
    it be saved. `progress` is told tokens of the closing evaluation.
    Raises DivergedError before a non-finite loss or gradient reaches a checkpoint, EnvironmentFailure when a
    file cannot be written.
    """
    watch = watcher(stop)
    pace = Pace(session.progress.step, session.progress.seconds)
    signal = None
    session.begin_clock()
    try:
        while signal is None and not _finished(session):
            try:
                watch()
                if session.progress.observed:
                    take_step(session, watch)
                yield from observe(session, pace, watch)
                session.progress = replace(session.progress, elapsed=session.elapsed())
            except StopAsked as asked_to_stop:
                signal = asked_to_stop.signal
            asked = save_asked()
            due = asked or session.progress.step % session.config.train.save_every == 0 or _finished(session)
            step = session.progress.step
            if step and session.progress != session.saved and (due or signal is not None):
                read_outcomes(session)
                session.directory.save(session.checkpoint(with_moments=True), session.config.train.keep_checkpoints)
                session.saved = session.progress
                yield Saved(step, session.directory.step_file(step), asked)
    except EnvironmentFailure as error:
        error.allowed = intact(session)
        first = error.hint if session.directory.checkpoints.is_dir() else "put the directory back"
        error.hint = "; then ".join(filter(None, [first, f"continue with {session.directory.resume_command}"]))
        raise
    closing = None
    if signal is None:
        closing, signal = _closing_evaluation(session, stop, progress)
    yield Finished(_summary(session, closing, signal), signal)


def _finished(session: Session) -> bool:
    """Whether no step is left to take and nothing is left to do about the last one.

    Where time ran out while a step was observed that was not evaluated, another step is the last one.
    """
    progress, settings = session.progress, session.config.train
    at_end = is_over(progress, settings) and (settings.max_time is None or progress.evaluated_step == progress.step)
    return progress.observed and (at_end or out_of_patience(session, progress.evaluations_without_best))


def _closing_evaluation(
    session: Session, stop: Stop, progress: Callable[[int], object]
) -> tuple[Evaluation | None, int | None]:
    """The loss of the best weights on the whole validation text, and the signal that cut it short.

    Everything is saved by now, so a signal loses nothing but this figure.
    """
    watch = watcher(stop)

    def count(num_tokens: int) -> None:
        progress(num_tokens)
        watch()

    settings, model = session.config.train, session.model
    if session.directory.best.exists():
        model = read_checkpoint(session.directory.best).build_model().to(session.device)
    windows = validation_windows(len(session.validation_ids), session.config.model.context_length)
    try:
        count(0)
        closing = evaluate(
            model, session.tokenizer, session.validation_ids, windows,
            batch_size=settings.batch_size, dtype=settings.dtype, progress=count,
        )  # fmt: skip
    except StopAsked as asked_to_stop:
        return None, asked_to_stop.signal
    return closing, None


def _summary(session: Session, closing: Evaluation | None, signal: int | None) -> dict[str, Any]:
    """The closing figures; those of the closing evaluation are None where a signal hurried."""
    settings = session.config.train
    reason = "steps" if settings.max_time is None else "time"
    if not is_over(session.progress, settings):
        reason = "patience"
    if signal is not None:
        reason = "signal"
    steps, seconds = session.progress.step, session.progress.seconds
    return {
        "run": str(session.directory.path),
        "steps": steps,
        "tokens": steps * session.tokens_per_step,
        "seconds": round(seconds, 3),
        "loss": session.progress.loss,
        "validation_loss": closing and closing.loss,
        "bits_per_byte": closing and closing.bits_per_byte,
        "tokens_per_second": round(steps * session.tokens_per_step / seconds, 1) if seconds else None,
        "parameters": sum(parameter.numel() for parameter in session.model.parameters()),
        "device": settings.device,
        "dtype": settings.dtype,
        "stopped_by": reason,
    }
