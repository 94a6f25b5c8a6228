"""One smoothed training loss, whoever shows it; scales and numbers of curves."""

import numpy as np
import pytest

from gpt_cli.checkpoints.metrics_files import smoothed
from gpt_cli.common.units import quantity
from gpt_cli.tools.reports.curves import Scale, axis_end, scale_of, short


def of_all(losses: list[float]) -> list[float]:
    """The smoothed loss after each step."""
    mean: float | None = None
    return [mean := smoothed(mean, loss, step) for step, loss in enumerate(losses, 1)]


def test_smoothing_begins_with_the_first_loss_and_ends_with_a_twentieth_of_each() -> None:
    assert of_all([4.0, 4.0]) == [4.0, 4.0]
    assert of_all([4.0, 9.0]) == [4.0, 8.0]  # 4 + (9 - 4) / 1.25
    assert of_all([1.0] * 100 + [21.0])[-1] == pytest.approx(2.0)
    assert smoothed(None, 3.0, 500) == 3.0  # a run of an earlier version, which kept no mean


@pytest.mark.parametrize(
    ("quantity", "low", "high", "scale"),
    [
        ("loss", 2.0, 6.0, Scale(2, 6)),
        ("loss", 2.0, 40.0, Scale(2, 40)),
        ("loss", 2.0, 41.0, Scale(2, 41, log=True)),
        ("loss", -1.0, 100.0, Scale(-1, 100)),  # a logarithm of which there is none
        ("learning_rate", 1e-6, 1e-3, Scale(0, 1e-3)),
        ("learning_rate", 0.0, 0.0, Scale(0, 1)),
        ("gradient_norm", 4.0, 4.0, Scale(2, 6)),
    ],
)
def test_a_scale_is_by_log_where_values_differ_much(quantity: str, low: float, high: float, scale: Scale) -> None:
    assert scale_of(quantity, [np.array([high]), np.array([]), np.array([low])]) == scale
    assert scale_of(quantity, []) == Scale(0, 1), "without values there is one too"


def test_heights_and_values_belong_together() -> None:
    assert Scale(2, 6).height(np.array([2, 3, 6])).tolist() == [0, 0.25, 1]
    assert Scale(1, 100, log=True).height(np.array([1, 10, 100])).tolist() == pytest.approx([0, 0.5, 1])
    assert Scale(1, 100, log=True).value(0.5) == pytest.approx(10)
    assert Scale(2, 6).value(0.25) == 3


def test_numbers_are_short_and_one_that_rounds_up_to_a_unit_has_the_unit() -> None:
    numbers = [0.0, 3.35301, 1234.0, 12_345.0, 2_048_000.0, 3.2e9, 1e-4, 2.5e-5, 1.136e20]
    numbers += [9_999.4, 9_999.6, 999_400, 999_600, 999.6e6]
    assert [short(number) for number in numbers] == [
        "0", "3.353", "1,234", "12.3 k", "2.05 M", "3.2 G", "1e-04", "2.5e-05", "1.1e+20",
        "9,999", "10 k", "999 k", "1 M", "1 G",
    ]  # fmt: skip
    assert [quantity(number) for number in (999_400, 999_600, 999_600_000)] == ["999 k", "1 M", "1 G"]


def test_an_axis_ends_with_what_it_counts() -> None:
    found = [axis_end("step", 1000), axis_end("tokens", 2_048_000), axis_end("seconds", 119), axis_end("seconds", 900)]
    assert found == ["1,000 steps", "2.05 M tokens", "119 s", "15 min"]
    assert (axis_end("seconds", 3 * 86_400), axis_end("step", 1.0)) == ("3 d", "1 step")
