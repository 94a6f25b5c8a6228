"""Decide what to do after a step, and when a model or the run ends: pure functions of progress and settings."""

import math
from dataclasses import dataclass

from gpt_cli.checkpoints.header import Progress
from gpt_cli.config import Config, TrainConfig

# times train.weight_decay, for the last of several models, whose targets cannot be memorised; this model also trains
# without dropout (note 0073)
DECAY_OF_LAST = 0.1


@dataclass(frozen=True)
class StepActions:
    """Which actions are due after a step; the last step is always logged, evaluated, sampled and saved."""

    log: bool
    evaluate: bool
    sample: bool
    snapshot: bool  # of attention, if the config names a prompt: after the first step, every period, and the last
    save: bool
    last: bool


def step_actions(progress: Progress, config: Config) -> StepActions:
    """Return the actions that are due after step `progress.step`; none are due at step 0.

    Call it again after an evaluation, which may exhaust the patience. With max_time, `last` waits for that second call:
    when a limit is reached, `evaluate` is due. If time runs out after a step that was not evaluated, one more follows.
    """
    settings, step, watches = config.train, progress.step, config.inspect.prompt is not None
    over = limit_reached(progress, settings) is not None
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


def model_ends(progress: Progress, settings: TrainConfig) -> bool:
    """Return whether the current model has used its part of the steps or the time, so that the next model begins."""
    steps, seconds, end = settings.max_steps, settings.max_time, _end_of_model(progress, settings)
    if end == 1.0 or progress.step == progress.model_step:
        return False
    by_steps = steps is not None and progress.step >= steps * end
    return by_steps or (seconds is not None and seconds * end <= progress.elapsed < seconds)


def settings_of_model(progress: Progress, settings: TrainConfig) -> TrainConfig:
    """Return `settings` with the current model's max_steps, max_time and weight_decay, if several models train."""
    if settings.teacher_share is None:
        return settings
    steps, seconds, end = settings.max_steps, settings.max_time, _end_of_model(progress, settings)
    is_last = is_last_of_several(len(progress.teachers), settings)
    return settings.model_copy(
        update={
            "max_steps": None if steps is None else max(1, math.ceil(steps * end) - progress.model_step),
            "max_time": None if seconds is None else seconds * end - progress.model_elapsed,
            "weight_decay": settings.weight_decay * (DECAY_OF_LAST if is_last else 1),
        }
    )


def is_last_of_several(num_before: int, settings: TrainConfig) -> bool:
    """Return whether a model that `num_before` models precede is the last of a run that trains 3 or more models."""
    return 1 < num_before == settings.num_teachers


def _end_of_model(progress: Progress, settings: TrainConfig) -> float:
    """Return the share of the run (0 to 1) after which the current model ends.

    The first model ends at `teacher_share`. Later models train equally long, but the last of 3 or more twice as long.
    """
    share, number, num_models = settings.teacher_share, len(progress.teachers), settings.num_models
    if share is None or number >= num_models - 1:
        return 1.0
    return round(share + (1 - share) * number / num_models, 9)  # 0.2 + 0.8 / 2 is above 0.6


def limit_reached(progress: Progress, settings: TrainConfig) -> str | None:
    """Return "steps" if max_steps steps are taken, "time" if another step would likely end after max_time, or None."""
    step, max_time = progress.step, settings.max_time
    if settings.max_steps is not None and step >= settings.max_steps:
        return "steps"
    is_late = max_time is not None and step and progress.elapsed + progress.seconds / step > max_time
    return "time" if is_late else None
