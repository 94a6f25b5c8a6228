from dataclasses import replace

import pytest

from gpt_cli.checkpoints.header import Progress
from gpt_cli.config import Config, InspectConfig, TrainConfig
from gpt_cli.training.intervals import StepActions, is_finished, limit_reached, step_actions

START = Progress.at_the_start(1, "", {})
BY_STEP = TrainConfig(
    max_steps=100, log_every=2, eval_every=3, sample_every=5, save_every=7, patience=4, warmup_steps=0
)
# steps of 1 s each: after 30 of them another one would end too late
BY_CLOCK = BY_STEP.changed(max_time=30.5, max_steps=None)


def at(step: int, **others: float) -> Progress:
    """The progress after steps of one second each."""
    return replace(START, **({"step": step, "seconds": float(step), "elapsed": float(step)} | others))


TABLE = [
    # by step: each period by itself, and all together at the end
    (BY_STEP, at(0), ""),
    (BY_STEP, at(1), ""),
    (BY_STEP, at(2), "log"),
    (BY_STEP, at(3), "log evaluate"),
    (BY_STEP, at(5), "sample"),
    (BY_STEP, at(7), "save"),
    (BY_STEP, at(70), "log sample save"),
    (BY_STEP, at(100), "log evaluate sample save last"),
    (BY_STEP, at(101), "log evaluate sample save last"),
    (BY_STEP.changed(sample_every=None), at(5), ""),
    (BY_STEP.changed(sample_every=None), at(100), "log evaluate sample save last"),
    # evaluations without a new best
    (BY_STEP, at(9, evaluations_without_best=3), "log evaluate"),
    (BY_STEP, at(9, evaluations_without_best=4), "log evaluate sample save last"),
    (BY_STEP.changed(patience=None), at(9, evaluations_without_best=400), "log evaluate"),
    # by the clock max_steps has no effect, and the last step is the last one that is evaluated in time
    (BY_CLOCK, at(29), ""),
    (BY_CLOCK, at(100, seconds=1.0, elapsed=1.0), "log sample"),
    (BY_CLOCK, at(31), "log evaluate"),
    (BY_CLOCK, at(31, evaluated_step=31), "log evaluate sample save last"),
    (BY_CLOCK, at(29, elapsed=31.0), "log evaluate"),
    (BY_CLOCK, at(1, elapsed=29.4), ""),
    (BY_CLOCK, at(1, elapsed=29.6), "log evaluate"),
]


@pytest.mark.parametrize(("settings", "progress", "words"), TABLE)
def test_what_is_due(settings: TrainConfig, progress: Progress, words: str) -> None:
    names = ("log", "evaluate", "sample", "snapshot", "save", "last")
    expected = StepActions(**{name: name in words.split() for name in names})
    assert step_actions(progress, Config(train=settings)) == expected


def test_a_training_is_finished_when_its_last_step_is_observed() -> None:
    config = Config(train=BY_STEP)
    assert not is_finished(at(100, observed_step=99), config)
    assert is_finished(at(100, observed_step=100), config)
    assert not is_finished(at(99, observed_step=99), config)
    assert not is_finished(START, config.changed(train={"max_time": 0.001}))  # one step is always taken


def test_where_both_lengths_hold_the_first_ends_the_run() -> None:
    both = BY_CLOCK.changed(max_steps=100)
    by_steps = both.changed(max_time=1000.0)
    for settings, last in ((both, 30), (by_steps, 100)):
        config, steps = Config(train=settings), range(last - 2, last + 1)
        ends = [step_actions(at(step, evaluated_step=step), config).last for step in steps]
        assert ends == [False, False, True]
    assert (limit_reached(at(31), both), limit_reached(at(100), by_steps)) == ("time", "steps")


@pytest.mark.parametrize("settings", [BY_STEP, BY_CLOCK.changed(max_time=100.5)], ids=["steps", "clock"])
def test_snapshots_are_due_after_the_first_step_each_period_and_the_last(settings: TrainConfig) -> None:
    config = Config(train=settings, inspect=InspectConfig(prompt="a b", every=30))
    steps = [step for step in range(101) if step_actions(at(step, evaluated_step=step), config).snapshot]
    assert steps == [1, 30, 60, 90, 100]
    assert not any(step_actions(at(step), Config(train=settings)).snapshot for step in range(101))
