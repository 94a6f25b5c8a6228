"""Runs that are to go on although nothing is left to train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_cli.checkpoints.header import Progress
from gpt_cli.checkpoints.list import read_outcome
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.config import Config
from gpt_cli.errors import CheckpointError, UsageError, shown, visible
from gpt_cli.strict_json import figure, step_of
from gpt_cli.training.due import ended_by, is_finished
from gpt_cli.training.reports import Finished

_NUMBERS = ("tokens", "seconds", "validation_loss", "validation_tokens", "bits_per_byte", "parameters")
_MAY_BE_NULL = ("loss", "validation_loss_error", "tokens_per_second")
_LATER = ("smoothed_loss",)  # which earlier versions did not record
_WORDS = ("device", "dtype")


def ended_before(run: RunFiles, progress: Progress, asked: Config, own: Config | None) -> Finished | None:
    """How a run has ended that has trained all that is asked; None where something is left to do.

    `own` is the config that the run has kept. Raises UsageError where less is asked than the run has trained already.
    """
    _require_no_less(run, progress, asked, own)
    if not is_finished(progress, asked.train):
        return None
    if own is None or own.data.validation_tokens != asked.data.validation_tokens:  # to be measured anew
        return None
    try:
        outcome = read_outcome(run)
    except CheckpointError:
        return None
    if not _is_whole(outcome) or outcome["step"] != progress.step:
        return None  # a kill came before the closing evaluation, or a signal
    figures = {key: outcome[key] for key in outcome if key in (*_NUMBERS, *_MAY_BE_NULL, *_LATER, *_WORDS)}
    summary = {"run": str(run.path), "steps": progress.step, **figures, "stopped_by": outcome["stopped_by"]}
    return Finished(summary, None, outcome["best_step"], _sentence(run, progress, asked))


def _is_whole(outcome: Mapping[str, Any]) -> bool:
    """Whether an outcome has all figures of a training that has ended by itself."""
    return (
        outcome.get("stopped_by") in ("steps", "time", "patience")
        and step_of(outcome.get("step")) is not None
        and step_of(outcome.get("best_step")) is not None
        and all(figure(outcome.get(key)) is not None for key in _NUMBERS)
        and all(key in outcome and (outcome[key] is None or figure(outcome[key]) is not None) for key in _MAY_BE_NULL)
        and all(outcome.get(key) is None or figure(outcome[key]) is not None for key in _LATER)
        and all(isinstance(outcome.get(key), str) for key in _WORDS)
    )


def _require_no_less(run: RunFiles, progress: Progress, asked: Config, own: Config | None) -> None:
    """Raise UsageError for a length that this command gives and that the run has passed."""
    length = (asked.train.max_steps, asked.train.max_time)
    if own is not None and length == (own.train.max_steps, own.train.max_time):
        return
    if asked.train.max_time is None and asked.train.max_steps < progress.step:
        sentence = f"{shown(run.path)} has trained {progress.step:,} steps already, more than {asked.train.max_steps:,}"
        # the run's own length may still lie ahead
        ahead = own is not None and own.train.max_time is None and own.train.max_steps > progress.step
        longer = "" if ahead else f" --max-steps {2 * progress.step}"
        raise UsageError("--max-steps", sentence, hint=f"{run.resume_command}{longer}")
    if asked.train.max_time is not None and asked.train.max_time < progress.elapsed:
        spent = round(progress.elapsed)
        sentence = f"{shown(run.path)} has trained for {spent:,} s already, more than {asked.train.max_time:g} s"
        ahead = own is not None and own.train.max_time is not None and own.train.max_time > progress.elapsed
        longer = "" if ahead else f" --max-time {2 * spent}s"
        raise UsageError("--max-time", sentence, hint=f"{run.resume_command}{longer}")


def _sentence(run: RunFiles, progress: Progress, asked: Config) -> str:
    """That nothing is left to train, and what goes on."""
    settings, name = asked.train, visible(run.path)
    match ended_by(progress, settings):
        case "steps":
            return f"{name} already has its {progress.step:,} steps; --max-steps {2 * progress.step} goes on"
        case "time":
            assert settings.max_time is not None
            return f"{name} already has its {settings.max_time:g} s; --max-time {2 * settings.max_time:g}s goes on"
        case _:
            why = f"has ended at step {progress.step:,} for lack of a better validation loss"
            return f"{name} {why}; --set train.patience=null goes on"
