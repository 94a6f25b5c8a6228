"""The content of a report's page. What it shows in a browser: tests/tools/pages/report/."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pages import content_of, dump_of, keep, random_weights, snapshots_of, unpacked
from support.records import changed

import gpt_cli.tools.reports.page_content as module
from gpt_cli.attention_maps.patterns import AttentionDump, Origin
from gpt_cli.tools.reports.page_content import report_page
from gpt_cli.tools.reports.run_record import FIGURES, QUANTITIES, LoggedSample, RunRecord, read_record


def content(*records: RunRecord, dumps: Mapping[str, AttentionDump] | None = None) -> dict[str, Any]:
    return content_of(report_page(records, "step", dumps or {}))


def curves_of(run: dict[str, Any]) -> dict[str, np.ndarray]:
    """Each curve as [step, tokens, seconds, value] by points."""
    return {name: unpacked(text, "<f8").reshape(4, -1) for name, text in run["curves"].items()}


@pytest.fixture
def watched(copied: Path) -> Path:
    keep(snapshots_of(3, 2, 2, ["The", " value", " of"]), copied)
    return copied


def test_curves_equal_the_lines_of_the_run(smoke_run: Path) -> None:
    lines = [json.loads(line) for line in (smoke_run / "metrics.jsonl").read_text().splitlines()]
    (run,) = content(read_record(smoke_run))["runs"]
    curves = curves_of(run)
    for name in QUANTITIES:
        expected = [[line[key] for key in ("step", "tokens", "seconds", name)] for line in lines if name in line]
        assert curves[name].T.tolist() == expected


def long(record: RunRecord, num_lines: int) -> RunRecord:
    """A record with as many lines, with a spike at the loss of line 1000."""
    metrics = {name: np.random.default_rng(0).normal(size=num_lines) for name in FIGURES}
    metrics["step"] = np.arange(1.0, num_lines + 1)
    metrics["loss"][1000] = 99
    samples = tuple(LoggedSample(step, f"{step:x<5000}") for step in range(1000))
    return replace(record, metrics=metrics, samples=samples)


def test_a_run_of_many_lines_and_samples_or_thirty_runs_make_a_small_page(smoke_run: Path) -> None:
    record = long(read_record(smoke_run), 100_000)
    page = report_page([record], "step", {})
    (run,) = content_of(page)["runs"]
    assert len(page) < 5_000_000
    assert len(report_page([long(record, 5000)] * 30, "step", {})) < 5_000_000
    assert 99 in curves_of(run)["loss"][3]
    assert curves_of(run)["loss"][0, [0, -1]].tolist() == [1, 100_000]
    steps = [sample["step"] for sample in run["samples"]]
    assert (len(steps), steps[0], steps[-1], run["numSamples"]) == (300, 0, 999, 1000)
    assert {len(sample["text"]) for sample in run["samples"]} == {2001}


@pytest.mark.parametrize(
    ("prompt", "texts", "begins"),
    [
        (None, ["The cat sat", "The cow ran", "The"], ["", "", ""]),
        (None, ["The cat sat", "The cow ran"], ["The c", "The c"]),
        (None, ["The cat sat"], [""]),
        ("The", ["The cat sat", "The cow ran", "A dog"], ["The", "The", ""]),
        ("The", ["The"], ["The"]),
    ],
)
def test_a_sample_begins_with_the_prompt_or_with_what_all_share(
    smoke_run: Path, prompt: str | None, texts: list[str], begins: list[str]
) -> None:
    record = changed(read_record(smoke_run), train={"sample_prompt": prompt})
    samples = tuple(LoggedSample(10 * step, text) for step, text in enumerate(texts, 1))
    (run,) = content(replace(record, samples=samples))["runs"]
    assert [sample["begins"] for sample in run["samples"]] == begins


@pytest.mark.parametrize("name", ["loss", "seconds"])
def test_what_is_not_finite_is_no_point_and_no_place(smoke_run: Path, name: str) -> None:
    record = read_record(smoke_run)
    damaged = replace(record, metrics={**record.metrics, name: np.array([1, math.nan, math.inf, 2])})
    (run,) = content(damaged)["runs"]
    steps, _, seconds, _ = curves_of(run)["loss"]
    if name == "loss":
        assert steps.tolist() == [5, 20]
    else:
        assert steps.tolist() == [5, 10, 15, 20]
        assert np.isnan(seconds[1])


def test_a_dump_that_was_asked_for_replaces_snapshots(watched: Path) -> None:
    dump = dump_of(["a", "b"], random_weights(1, 2, 2), origin=Origin("best.safetensors", 20, "ab"))
    (part,) = content(read_record(watched), dumps={str(watched): dump})["attention"]
    assert part["weights"]["tokens"] == ["a", "b"]
    assert "frames" not in part["weights"]


def test_attention_that_is_too_large_or_damaged_is_left_out(watched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = read_record(watched)
    monkeypatch.setattr(module, "_MOST_ATTENTION", 10)
    assert content(record)["attention"][0]["weights"] is None
    (watched / "attention" / "step-00000020.safetensors").write_bytes(b"x")
    (part,) = content(record)["attention"]
    assert part["weights"] is None
    assert "this is not an attention snapshot" in part["problem"]


def test_a_page_is_the_same_for_the_same_runs(smoke_run: Path) -> None:
    assert report_page([read_record(smoke_run)], "step", {}) == report_page([read_record(smoke_run)], "step", {})


def test_runs_that_differ_in_their_seed_alone_share_a_colour(smoke_run: Path) -> None:
    settings = [{"seed": 1}, {"seed": 2}, {"seed": 1, "learning_rate": 0.5}, {"seed": 1}]
    records = [changed(read_record(smoke_run), train=each) for each in settings]
    marks = [(run["group"], run["mark"]) for run in content(*records)["runs"]]
    assert marks == [(0, "a1"), (0, "a2"), (1, "b"), (2, "c")]


def test_means_name_settings_as_a_config_does(smoke_run: Path) -> None:
    settings = [{"seed": seed, "patience": patience} for patience in (None, 3) for seed in (1, 2)]
    records = [changed(read_record(smoke_run), train=each) for each in settings]
    assert [mean["settings"] for mean in content(*records)["means"]] == [
        {"train.patience": "null"},
        {"train.patience": "3"},
    ]


def test_names_show_their_control_characters(smoke_run: Path) -> None:
    (run,) = content(replace(read_record(smoke_run), name="a\x1b[31m\u202eb"))["runs"]
    assert run["name"] == "a\\x1b[31m\\u202eb"
