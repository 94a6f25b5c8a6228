"""Curves are the numbers of metrics.jsonl."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpt_cli.reporting.curves import AXES, QUANTITIES, curve, smoothed, thinned
from gpt_cli.reporting.record import read_record


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_curves_equal_the_lines_of_the_run(smoke_run: Path, quantity: str, axis: str) -> None:
    lines = [json.loads(line) for line in (smoke_run / "metrics.jsonl").read_text().splitlines()]
    expected = [(line[axis], line[quantity]) for line in lines if quantity in line]
    x, y = curve(read_record(smoke_run), quantity, axis)
    assert x.dtype == y.dtype == np.float64
    assert list(zip(x.tolist(), y.tolist(), strict=True)) == expected
    assert len(expected) == (2 if quantity in ("validation_loss", "bits_per_byte") else 4)


def test_what_is_not_finite_has_no_point(smoke_run: Path) -> None:
    record = read_record(smoke_run)
    losses = np.array([1, np.inf, 3, np.nan])
    seconds = np.array([np.nan, 1, 2, 3])
    damaged = replace(record, metrics={**record.metrics, "loss": losses, "seconds": seconds})
    assert [found.tolist() for found in curve(damaged, "loss", "step")] == [[5, 15], [1, 3]]
    assert [found.tolist() for found in curve(damaged, "loss", "seconds")] == [[2], [3]]


def test_smoothing_begins_with_the_first_loss_and_ends_with_a_twentieth_of_each() -> None:
    assert smoothed(np.array([4.0, 4.0])).tolist() == [4.0, 4.0]
    assert smoothed(np.array([4.0, 9.0])).tolist() == [4.0, 8.0]  # 4 + (9 - 4) / 1.25
    many = smoothed(np.array([1.0] * 100 + [21.0]))
    assert many[-1] == pytest.approx(2.0)
    assert smoothed(np.array([])).tolist() == []


def test_thinning_keeps_ends_and_extremes() -> None:
    y = np.sin(np.arange(100_000.0))
    y[0], y[-1] = 0.25, 0.75
    y[70_001], y[70_002] = 9, -9
    places = thinned(y, 1000)
    assert len(places) <= 1000
    assert {0, 70_001, 70_002, 99_999} <= set(places.tolist())
    assert (np.diff(places) > 0).all()


@pytest.mark.parametrize("num_points", [0, 1, 4, 5, 1000])
def test_few_points_are_all_kept(num_points: int) -> None:
    assert thinned(np.zeros(num_points), 1000).tolist() == list(range(num_points))


def test_level_curves_keep_their_ends() -> None:
    assert {0, 4999} <= set(thinned(np.ones(5000), 4).tolist())
