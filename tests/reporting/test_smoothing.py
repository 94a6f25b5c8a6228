"""One smoothed training loss, whoever shows it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpt_cli.reporting.smoothing import filled, smoothed


def of_all(losses: list[float]) -> list[float]:
    """The smoothed loss after each step."""
    mean: float | None = None
    return [mean := smoothed(mean, loss, step) for step, loss in enumerate(losses, 1)]


def test_smoothing_begins_with_the_first_loss_and_ends_with_a_twentieth_of_each() -> None:
    assert of_all([4.0, 4.0]) == [4.0, 4.0]
    assert of_all([4.0, 9.0]) == [4.0, 8.0]  # 4 + (9 - 4) / 1.25
    assert of_all([1.0] * 100 + [21.0])[-1] == pytest.approx(2.0)
    assert smoothed(None, 3.0, 500) == 3.0  # a run of an earlier version, which kept no mean


@pytest.mark.parametrize("every", [1, 7, 10, 100])
def test_lines_of_earlier_versions_count_as_the_steps_since_the_line_before(every: int) -> None:
    steps = np.arange(every, 301, every, dtype=float)
    losses = 3 + np.sin(steps)
    expected = np.array(of_all(np.repeat(losses, every).tolist()))[every - 1 :: every]
    assert filled(steps, losses, np.full(len(steps), math.nan)) == pytest.approx(expected)


def test_what_is_logged_is_kept() -> None:
    steps, losses = np.array([1.0, 2.0, 10.0]), np.array([5.0, 4.0, math.nan])
    assert filled(steps, losses, np.array([7.0, math.nan, math.nan]))[:2].tolist() == [7.0, 4 + (7 - 4) * 0.2]
    assert math.isnan(filled(steps, losses, np.full(3, math.nan))[2])
    assert filled(np.empty(0), np.empty(0), np.empty(0)).tolist() == []
