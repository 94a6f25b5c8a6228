"""What is compared of runs: curves, which are the numbers of metrics.jsonl, figures and settings."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.pages import content_of
from support.records import changed, record

from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.checkpoints.run_list import RunLoss
from gpt_cli.config.schema import SEED
from gpt_cli.tools.reports.compare_runs import (
    Row,
    differing_settings,
    evaluated_tokens,
    groups_of,
    mean_curve,
    means,
    means_of_records,
    models_in_turn,
    repeated,
    rows,
)
from gpt_cli.tools.reports.curves import thinned
from gpt_cli.tools.reports.page_content import report_page
from gpt_cli.tools.reports.report import RunReport
from gpt_cli.tools.reports.run_record import read_record


def test_what_is_not_finite_has_no_point(smoke_run: Path) -> None:
    record = read_record(smoke_run)
    losses = np.array([1, np.inf, 3, np.nan])
    seconds = np.array([np.nan, 1, 2, 3])
    damaged = replace(record, metrics={**record.metrics, "loss": losses, "seconds": seconds})
    assert [found.tolist() for found in damaged.curve("loss")] == [[5, 15], [1, 3]]
    assert [found.tolist() for found in damaged.curve("loss", "seconds")] == [[2], [3]]


def test_thinning_keeps_ends_and_extremes() -> None:
    y = np.sin(np.arange(100_000.0))
    y[0], y[-1] = 0.25, 0.75
    y[70_001], y[70_002] = 9, -9
    places = thinned(y, 1000)
    assert len(places) <= 1000
    assert {0, 70_001, 70_002, 99_999} <= set(places.tolist())
    assert (np.diff(places) > 0).all()


def test_few_points_are_all_kept_and_level_curves_keep_their_ends() -> None:
    for num_points in (0, 1, 4, 5, 1000):
        assert thinned(np.zeros(num_points), 1000).tolist() == list(range(num_points))
    assert {0, 4999} <= set(thinned(np.ones(5000), 4).tolist())


def test_a_seed_that_has_only_begun_leaves_the_curve_of_the_other() -> None:
    long, begun = record("a"), record("b", (5.0,))
    begun = replace(begun, metrics={**begun.metrics, "seconds": np.array([59.0])})  # before the first point of a
    group = groups_of([long])[0]._replace(records=[long, begun])
    x, y, error = mean_curve(group, "loss", "seconds")
    assert (x.tolist(), y.tolist(), error.tolist()) == ([60, 120, 180], [4, 3, 2], [0, 0, 0])
    x, y, error = mean_curve(group, "loss", "step")
    assert (x.tolist(), y.tolist()) == ([1], [4.5])


def test_only_evaluations_of_a_part_name_their_tokens() -> None:
    one = record()
    part = replace(one, metrics={**one.metrics, "validation_tokens": np.full(3, 1024.0)})
    ended = replace(part, overview=replace(part.overview, outcome={"validation_tokens": 1024}))
    assert [evaluated_tokens(runs) for runs in ([part], [ended], [ended, part], [one])] == [1024, None, None, None]


def test_runs_differ_where_two_of_them_say_something_else(smoke_run: Path) -> None:
    record = read_record(smoke_run)
    others = [record, changed(record, train={"learning_rate": 0.5, "log_to": ["wandb"]}), record]
    assert differing_settings(others) == [
        Row("train.learning_rate", ("0.01", "0.5", "0.01")),
        Row("train.log_to", ("[]", '["wandb"]', "[]")),
    ]
    assert differing_settings([record]) == []
    assert len(rows([each.config for each in others])) == len(record.config)


def test_a_run_without_a_config_differs_in_nothing(smoke_run: Path) -> None:
    record = read_record(smoke_run)
    silent = replace(record, overview=replace(record.overview, config=None))
    assert differing_settings([record, silent]) == []
    assert rows([silent.config, record.config])[0] == Row("model.context_length", (None, "32"))


def test_rows_keep_the_order_of_the_contents() -> None:
    assert rows([{"a": 1, "b": "x"}, {"b": None, "c": True}]) == [
        Row("a", ("1", None)),
        Row("b", ("x", "null")),
        Row("c", (None, "true")),
    ]


def test_figures_of_a_finished_run_are_those_of_its_closing_evaluation(smoke_run: Path) -> None:
    record = read_record(smoke_run)
    figures = record.final_figures()
    for name in ("tokens", "seconds", "loss", "validation_loss", "bits_per_byte", "tokens_per_second", "parameters"):
        assert figures[name] == record.overview.outcome[name]
    assert (figures["steps"], figures["best_validation_loss"]) == (20, record.metrics["validation_loss"][3])


def test_figures_of_a_run_without_an_end_are_those_of_its_last_lines(copied: Path) -> None:
    RunDirectory(copied).end("diverged", 20)
    record = read_record(copied)
    record = replace(record, metrics={**record.metrics, "loss": np.array([4.0, 3.0, math.nan, math.inf])})
    record.metrics["tokens_per_second"][:] = [math.nan, 500, 900, 100]
    figures = record.final_figures()
    assert (figures["loss"], figures["seconds"]) == (3.0, record.metrics["seconds"][-1])
    whole = f"{record.metrics['tokens'][-1]:.0f}"  # as an outcome has it
    assert json.dumps(figures["tokens"]) == whole
    assert figures["validation_loss"] == record.metrics["validation_loss"][3]
    assert figures["tokens_per_second"] == 500  # the median


def closed(loss: float, bits: float = 1.0) -> RunLoss:
    return RunLoss(loss, 0.1, bits, closed=True)


def test_means_are_those_of_runs_that_differ_in_their_seed_alone() -> None:
    """2, 3 and 4 have the mean 3 and the standard deviation 1; a run without an end does not count."""
    rate = "train.learning_rate"
    runs = [({rate: "1", SEED: str(seed)}, closed(loss)) for seed, loss in enumerate((2.0, 3.0, 4.0))]
    runs += [
        ({rate: "2", SEED: "0"}, closed(2.5, 9.0)),
        ({rate: "2", SEED: "1"}, RunLoss(0.5, None, None, closed=False)),
    ]
    found = means([*runs, ({rate: "3", SEED: "0"}, None), runs[0]], by_token=True)
    assert [tuple(mean) for mean in found] == [
        ({rate: "1"}, 1, 2.0, None, ("0",), (2.0,), (6,)),  # the same seed again is no repeat
        ({rate: "2"}, 1, 2.5, None, ("0",), (2.5,), (3, 4)),
        ({rate: "1"}, 3, 3.0, pytest.approx(1 / math.sqrt(3)), ("0", "1", "2"), (2.0, 3.0, 4.0), (0, 1, 2)),
        ({rate: "3"}, 0, None, None, (), (), (5,)),
    ]
    assert [mean.mean for mean in means(runs, by_token=False)] == [1.0, 9.0]


def test_a_report_has_means_where_runs_are_repeated(smoke_run: Path) -> None:
    record = read_record(smoke_run)
    loss = record.overview.outcome["validation_loss"]
    runs = [record, changed(record, train={"seed": 5})]
    others = [changed(record, train={"seed": seed, "learning_rate": 0.5}) for seed in (1337, 5)]
    assert [tuple(mean) for mean in means_of_records(runs)] == [
        ({}, 2, pytest.approx(loss), 0.0, (1337, 5), (loss, loss), (0, 1))
    ]
    assert [mean.settings for mean in means_of_records([*runs, *others])] == [
        {"train.learning_rate": 0.01},
        {"train.learning_rate": 0.5},
    ], "numbers, not texts"
    for single in ([record], [record, record], [record, others[0]], [record, others[1]]):
        assert not repeated(means_of_records(single))


def test_models_that_a_run_trains_in_turn_have_their_steps_and_their_lowest_loss() -> None:
    taught = replace(record("taught", (4.0, 3.0, 4.5, 2.0)), teachers=(2,))  # it evaluates 1 higher at each step
    first, second = taught.as_dict()["models"]
    assert first == {"first_step": 1, "last_step": 2, "validation_loss": 4.0}
    assert second == {"first_step": 3, "last_step": 4, "validation_loss": 3.0}
    alone = record("alone", (2.0,))
    assert alone.models == [{"first_step": 1, "last_step": 1, "validation_loss": 3.0}]
    assert models_in_turn([taught, alone]) == [Row("1", ("1-2: 4.000", None)), Row("2", ("3-4: 3.000", None))]
    assert models_in_turn([alone]) == []
    text = RunReport((taught,)).as_text()
    assert "steps, lowest validation loss\n   taught\n1  1-2: 4.000\n2  3-4: 3.000" in text
    page = content_of(report_page([taught, alone], "step", {}))["models"]
    assert [row["values"] for row in page] == [["1-2: 4.000", None], ["3-4: 3.000", None]]
