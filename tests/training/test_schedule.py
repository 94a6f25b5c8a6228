import pytest

from gpt_cli.config import TrainConfig
from gpt_cli.training.schedule import learning_rate

SETTINGS = TrainConfig(learning_rate=1.0, warmup_steps=4, max_steps=14)


def test_the_rate_rises_and_then_falls_to_zero_in_straight_lines() -> None:
    rates = [learning_rate(step, SETTINGS) for step in range(14)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, *(i / 10 for i in range(10, 0, -1))])
    assert learning_rate(14, SETTINGS) == 0


def test_without_warm_up_it_begins_at_its_highest() -> None:
    assert learning_rate(0, SETTINGS.model_copy(update={"warmup_steps": 0})) == 1.0
