"""Tables of several runs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.reporting.figures import final_figures
from gpt_cli.reporting.record import RunRecord, read_record
from gpt_cli.reporting.settings import Row, differing_settings, rows, settings


def changed(record: RunRecord, **train: object) -> RunRecord:
    config = record.overview.config
    assert config is not None
    return replace(record, overview=replace(record.overview, config=config.changed(train=train)))


def test_runs_differ_where_two_of_them_say_something_else(smoke_run: Path) -> None:
    record = read_record(smoke_run)
    others = [record, changed(record, learning_rate=0.5, log_to=["wandb"]), record]
    assert differing_settings(others) == [
        Row("train.learning_rate", ("0.01", "0.5", "0.01")),
        Row("train.log_to", ("[]", '["wandb"]', "[]")),
    ]
    assert differing_settings([record]) == []
    assert len(settings(others)) == len(record.config)


def test_a_run_without_a_config_differs_in_nothing(smoke_run: Path) -> None:
    record = read_record(smoke_run)
    silent = replace(record, overview=replace(record.overview, config=None))
    assert differing_settings([record, silent]) == []
    assert settings([silent, record])[0] == Row("model.context_length", (None, "32"))


def test_rows_keep_the_order_of_the_contents() -> None:
    assert rows([{"a": 1, "b": "x"}, {"b": None, "c": True}]) == [
        Row("a", ("1", None)),
        Row("b", ("x", "null")),
        Row("c", (None, "true")),
    ]


def test_figures_of_a_finished_run_are_those_of_its_closing_evaluation(smoke_run: Path) -> None:
    record = read_record(smoke_run)
    figures = final_figures(record)
    for name in ("tokens", "seconds", "loss", "validation_loss", "bits_per_byte", "parameters"):
        assert figures[name] == record.outcome[name]
    assert (figures["steps"], figures["best_validation_loss"]) == (20, record.metrics["validation_loss"][3])


def test_figures_of_a_run_without_an_end_are_those_of_its_last_lines(copied: Path) -> None:
    RunDirectory(copied).end("diverged", 20)
    record = read_record(copied)
    record = replace(record, metrics={**record.metrics, "loss": np.array([4.0, 3.0, math.nan, math.inf])})
    figures = final_figures(record)
    assert (figures["loss"], figures["seconds"]) == (3.0, record.metrics["seconds"][-1])
    assert figures["validation_loss"] == record.metrics["validation_loss"][3]
