import pytest

from gpt_cli.config import TrainConfig
from gpt_cli.training.lr_schedule import lr_multiplier, warmup_steps

BY_STEP = TrainConfig(warmup_steps=4, max_steps=14)
BY_CLOCK = TrainConfig(warmup_steps=4, max_time=100.0)


def test_the_rate_rises_and_then_falls_to_zero_in_straight_lines() -> None:
    rates = [lr_multiplier(step, BY_STEP) for step in range(14)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, *(i / 10 for i in range(10, 0, -1))])
    assert lr_multiplier(14, BY_STEP) == 0


def test_a_cosine_falls_slowly_fast_and_slowly() -> None:
    settings = BY_STEP.changed(schedule="cosine")
    assert [lr_multiplier(step, settings) for step in (4, 9, 14)] == pytest.approx([1.0, 0.5, 0.0])
    assert lr_multiplier(5, settings) == pytest.approx(0.9755, abs=1e-4)  # (1 + cos 18 degrees) / 2


def test_a_stable_rate_falls_in_the_second_half() -> None:
    settings = BY_STEP.changed(schedule="stable")
    assert [lr_multiplier(step, settings) for step in (3, 4, 8, 9, 10, 13)] == pytest.approx([1, 1, 1, 1, 0.8, 0.2])


@pytest.mark.parametrize("schedule", ["linear", "cosine", "stable"])
def test_by_the_clock_it_is_the_share_of_time_that_counts(schedule: str) -> None:
    settings = BY_CLOCK.changed(schedule=schedule, warmup_steps=0)
    by_step = TrainConfig(warmup_steps=0, max_steps=100, schedule=settings.schedule)
    for second in range(100):
        # whatever the number of steps
        assert lr_multiplier(10_000, settings, second) == pytest.approx(lr_multiplier(second, by_step))
    assert lr_multiplier(3, settings, 100.0) == lr_multiplier(3, settings, 1000.0) == 0


def test_where_both_lengths_hold_the_nearer_end_counts() -> None:
    settings = TrainConfig(warmup_steps=0, max_steps=10, max_time=100.0)
    assert lr_multiplier(5, settings, 20.0) == pytest.approx(0.5)  # half of the steps, a fifth of the time
    assert lr_multiplier(2, settings, 80.0) == pytest.approx(0.2)
    assert lr_multiplier(10, settings, 0.0) == lr_multiplier(0, settings, 100.0) == 0
    assert warmup_steps(settings.changed(warmup_steps=100)) == 5


@pytest.mark.parametrize("schedule", ["linear", "cosine", "stable"])
@pytest.mark.parametrize("warmup", [0, 3, 100])
def test_a_time_that_is_never_reached_changes_no_bit(schedule: str, warmup: int) -> None:
    steps = TrainConfig(schedule=schedule, warmup_steps=warmup, max_steps=40)  # type: ignore[arg-type]
    both = steps.changed(max_time=1000.0)
    for step in range(40):
        assert lr_multiplier(step, both, 24.0 * step) == lr_multiplier(step, steps)
    # and one that comes first is reached at the end of the fall, after a warm-up of at most half of it
    assert lr_multiplier(20, both, 1000.0) == 0
    assert lr_multiplier(1, both, 500.0) >= 0.4999


def test_by_the_clock_a_warm_up_ends_by_half_of_the_time() -> None:
    assert warmup_steps(BY_CLOCK) == 4
    assert lr_multiplier(0, BY_CLOCK, 0.0) == 0.25
    assert lr_multiplier(3, BY_CLOCK, 10.0) == pytest.approx(0.9)
    slow = BY_CLOCK.changed(warmup_steps=1000)
    assert lr_multiplier(5, slow, 25.0) == pytest.approx(0.5)
    assert lr_multiplier(9, slow, 60.0) == pytest.approx(0.4)
