"""What a logger is given: each step once, in order, with its sample."""

from __future__ import annotations

from pathlib import Path

from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.files import append
from gpt_cli.tools.loggers.worker import LogReader


def test_a_line_waits_for_one_look_because_its_sample_comes_after_it(tmp_path: Path) -> None:
    run = RunFiles(tmp_path)
    reader = LogReader(run, 0)
    assert list(reader.read_new(over=False)) == []
    append(run.metrics, '{"step": 10, "loss": 2.5}\n')
    assert list(reader.read_new(over=False)) == []
    append(run.samples, "=== step 10 ===\nOnce upon\na time\n")
    assert list(reader.read_new(over=False)) == [(10, {"loss": 2.5}, "Once upon\na time")]
    assert list(reader.read_new(over=True)) == []


def test_a_sample_waits_for_the_lines_before_it(tmp_path: Path) -> None:
    """Steps rise, as packages demand."""
    run = RunFiles(tmp_path)
    reader = LogReader(run, 0)
    append(run.metrics, '{"step": 10, "loss": 3}\n{"step": 20, "loss": 2}\n')
    append(run.samples, "=== step 15 ===\na\n=== step 25 ===\nb\n")
    assert list(reader.read_new(over=False)) == []
    assert [step for step, *_ in reader.read_new(over=False)] == [10, 15, 20]
    append(run.metrics, '{"step": 30, "loss": 1}\n')
    assert list(reader.read_new(over=True)) == [(25, {}, "b"), (30, {"loss": 1}, None)]


def test_what_was_taken_before_is_left_out(tmp_path: Path) -> None:
    run = RunFiles(tmp_path)
    append(run.metrics, '{"step": 10, "loss": 3}\n{"step": 20, "loss": 2}\n')
    append(run.samples, "=== step 10 ===\na\n=== step 20 ===\nb\n")
    assert list(LogReader(run, 10).read_new(over=True)) == [(20, {"loss": 2}, "b")]


def test_half_a_line_is_read_when_it_is_whole_and_a_damaged_one_never(tmp_path: Path) -> None:
    run = RunFiles(tmp_path)
    reader = LogReader(run, 0)
    append(run.metrics, '{"step": 10, "lo\n[10]\n\xff\n{"step": 20, "loss": 2, "learning_rate": null}\n{"step": 30,')
    assert list(reader.read_new(over=True)) == [(20, {"loss": 2}, None)]
    append(run.metrics, ' "loss": 1}\n')
    assert list(reader.read_new(over=True)) == [(30, {"loss": 1}, None)]
