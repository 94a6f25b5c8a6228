"""Decide what to do after a step, and whether the step was the last: pure functions of progress and settings."""

from __future__ import annotations

from dataclasses import dataclass

from gpt_cli.checkpoints.header import Progress
from gpt_cli.config import Config, TrainConfig


@dataclass(frozen=True)
class StepActions:
    """The actions after a step; the last step is always logged, evaluated, sampled and saved."""

    log: bool
    evaluate: bool
    sample: bool
    snapshot: bool  # of attention, if the config names a prompt: after the first step, every period, and the last
    save: bool
    last: bool


def step_actions(progress: Progress, config: Config) -> StepActions:
    """Return the actions that are due after step `progress.step`; none are due at step 0.

    Call this function again after the evaluation of a step, which may exhaust the patience. With max_time, only an
    evaluated step can be the last: if time runs out after a step without evaluation, one more step follows.
    """
    settings, step, watches = config.train, progress.step, config.inspect.prompt is not None
    over = _limit_reached(progress, settings) is not None
    evaluated = settings.max_time is None or progress.evaluated_step == step
    patience = settings.patience
    last = (over and evaluated) or (patience is not None and progress.evaluations_without_best >= patience)

    def every(period: int | None) -> bool:
        return step > 0 and period is not None and step % period == 0

    evaluate = over or every(settings.eval_every)
    return StepActions(
        log=last or evaluate or every(settings.log_every),
        evaluate=evaluate,
        sample=last or every(settings.sample_every),
        snapshot=watches and step > 0 and (last or step == 1 or every(config.inspect.every)),
        save=last or every(settings.save_every),
        last=last,
    )


def is_finished(progress: Progress, config: Config) -> bool:
    """Return whether the last step is taken and the actions after it are done."""
    return progress.observed and step_actions(progress, config).last


def ended_by(progress: Progress, settings: TrainConfig) -> str:
    """Return what ended a training: "steps", "time" or "patience"."""
    return _limit_reached(progress, settings) or "patience"


def _limit_reached(progress: Progress, settings: TrainConfig) -> str | None:
    """Return "steps" if max_steps steps are taken, "time" if another step would likely end after max_time, or None."""
    step, max_time = progress.step, settings.max_time
    if settings.max_steps is not None and step >= settings.max_steps:
        return "steps"
    is_late = max_time is not None and step and progress.elapsed + progress.seconds / step > max_time
    return "time" if is_late else None
