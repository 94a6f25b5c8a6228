"""What a training prints, made of reports."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.helpers import small_config

from gpt_cli.cli.terminal import Console
from gpt_cli.cli.work.showing import conclude, show_progress
from gpt_cli.model.costs import estimate
from gpt_cli.training.reports import Finished, Prepared, Report, Stepped


def prepared(*settings: str, step: int = 0, elapsed: float = 0.0) -> Prepared:
    """Of a run whose closing evaluation takes 5 s."""
    config = small_config(*settings)
    return Prepared(
        directory=Path("run"),
        config=config,
        step=step,
        elapsed=elapsed,
        costs=estimate(config.model, 257, micro_batch_size=4, dtype="float32"),
        num_processes=1,
        num_documents=1,
        num_characters=1,
        num_training_tokens=1,
        num_validation_tokens=1,
        vocab_size=257,
        steps_left=1,
        epochs_left=1.0,
        seconds_left=1.0,
        closing_seconds=5.0,
        prompt="The",
    )


def reports(*steps: tuple[int, float]) -> Iterator[Report]:
    """Steps with the seconds of the run at their end."""
    for step, elapsed in steps:
        time.sleep(0.11)  # a bar is drawn ten times a second at most
        yield Stepped(step, 1.5, 1e-3, 1.0, 1000.0, False, elapsed)
    yield Finished({}, None, None)


def test_the_time_left_follows_the_pace_of_this_part_and_has_the_closing_evaluation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first 10 of 30 steps took 100 s, on a busy machine; now a step takes 1 s."""
    start = prepared("train.max_steps=30", step=10, elapsed=100.0)
    show_progress(reports((20, 110.0)), start, Console())
    assert capsys.readouterr().err == "step 20/30: loss 1.5000, 1,000 tokens/s, 15 s left\n"


def test_by_the_clock_the_time_left_is_what_the_clock_says_and_the_closing_evaluation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_progress(reports((3, 20.0)), prepared("train.max_time=60"), Console())
    assert capsys.readouterr().err == "step 3: loss 1.5000, 1,000 tokens/s, 45 s left\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("settings", "expected"),
    [("train.max_time=60", "20/60 s, step 3, loss 1.500"), ("train.max_steps=30", "3/30 steps, loss 1.500")],
)
def test_the_bar_has_the_unit_of_its_way_and_the_step(
    settings: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    show_progress(reports((3, 20.0)), prepared(settings), Console())
    assert expected in terminal.getvalue()


def test_off_a_terminal_the_first_line_comes_an_interval_after_the_work_begins(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("gpt_cli.cli.progress.time.monotonic", lambda: now)
    with Console().counting("closing evaluation", 30, "tokens") as count:
        for now, amount in ((60.0, 0), (65.0, 10), (71.0, 10), (72.0, 10)):  # noqa: B007 - the clock reads it
            count(amount)
    assert capsys.readouterr().err == "closing evaluation: 20 of 30 tokens, 5.5 s left\n"


@pytest.mark.parametrize(("error", "expected"), [(0.00318, "1.4605 ± 0.0032 nats/token"), (None, "1.4605 nats/token")])
def test_the_result_tells_how_much_was_read_and_how_exact_the_loss_is(
    error: float | None, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = {"run": "run", "steps": 10, "seconds": 3.0, "stopped_by": "steps", "bits_per_byte": 2.107}
    summary |= {"validation_loss": 1.46049, "validation_loss_error": error, "validation_tokens": 111539}
    conclude(Finished(summary, None, 10), prepared(), Console(), as_json=False)
    figures = f"validation loss {expected} (111,539 tokens), 2.1070 bits/byte with the best weights, those of step 10"
    assert capsys.readouterr().out == f"run: 10 steps in 3.0 s, {figures}\n"
