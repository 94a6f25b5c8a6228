"""Scales and numbers of curves."""

from __future__ import annotations

import numpy as np
import pytest

from gpt_cli.reporting.scales import Scale, axis_end, scale_of, short


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
def test_a_scale_shows_all_values_and_is_by_log_where_they_differ_much(
    quantity: str, low: float, high: float, scale: Scale
) -> None:
    assert scale_of(quantity, [np.array([high]), np.array([]), np.array([low])]) == scale


def test_without_values_there_is_a_scale_too() -> None:
    assert scale_of("loss", []) == Scale(0, 1)


def test_heights_and_values_belong_together() -> None:
    assert Scale(2, 6).height(np.array([2, 3, 6])).tolist() == [0, 0.25, 1]
    assert Scale(1, 100, log=True).height(np.array([1, 10, 100])).tolist() == pytest.approx([0, 0.5, 1])
    assert Scale(1, 100, log=True).value(0.5) == pytest.approx(10)
    assert Scale(2, 6).value(0.25) == 3


def test_numbers_are_short() -> None:
    numbers = [0.0, 3.35301, 1234.0, 12_345.0, 2_048_000.0, 3.2e9, 1e-4, 2.5e-5, 1.136e20]
    assert [short(number) for number in numbers] == [
        "0", "3.353", "1234", "12.3 k", "2.05 M", "3.2 G", "1e-04", "2.5e-05", "1.1e+20",
    ]  # fmt: skip


def test_an_axis_ends_with_what_it_counts() -> None:
    found = [axis_end("step", 1000), axis_end("tokens", 2_048_000), axis_end("seconds", 119), axis_end("seconds", 900)]
    assert found == ["1,000 steps", "2.05 M tokens", "119 s", "15 min"]
    assert axis_end("seconds", 3 * 86_400) == "3 d"
