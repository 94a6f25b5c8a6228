"""What a training reports prints as lines of `gpt train`, for `print` in a notebook."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.prepared import prepared

from gpt_cli.evaluation.nll import Score
from gpt_cli.training.events import Evaluated, Finished, Sampled, Saved, Stepped, Training, TrainingEvent

SUMMARY = {
    "run": "runs/a",
    "steps": 1200,
    "validation_loss": 2.5,
    "validation_loss_error": 0.05,
    "validation_tokens": 4000,
    "bits_per_byte": 1.25,
}


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (
            prepared("smoke", vocab_size=512, tokens=196_489),
            "run: 59,072 parameters, 196,489 training tokens, 20 steps to go",
        ),
        (Stepped(1200, 2.25, 1e-3, 1.0, 1000.0, True, 60.0), "step 1,200: loss 2.2500"),
        (Stepped(1200, None, None, None, None, False, 60.0), "step 1,200"),
        (
            Evaluated(1200, Score(100, 2.5, None, 1.25), True),
            "step 1,200: validation loss 2.5000 nats/token, 1.2500 bits/byte",
        ),
        (
            Sampled(1200, "The king", " is\n\ndead"),
            "step 1,200 sample, after its prompt in « »:\n    «The king» is\n    dead",
        ),
        (Saved(1200, Path("runs/a/x"), False), "step 1,200: saved runs/a/x"),
        (
            Finished(SUMMARY, None, 900),
            "runs/a: 1,200 steps, validation loss 2.5000 ± 0.0500 nats/token (4,000 tokens), 1.2500 bits/byte "
            "with the best weights, those of step 900",
        ),
        (Finished({**SUMMARY, "validation_loss": None}, 2, None), "runs/a: 1,200 steps"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_report_prints_as_a_line(report: TrainingEvent, line: str) -> None:
    assert str(report) == line


@pytest.mark.parametrize(("save_every", "num_checkpoints"), [(20, 1), (19, 2), (1, 2)])
def test_the_disk_holds_the_checkpoints_that_a_run_leaves(save_every: int, num_checkpoints: int) -> None:
    """Of 20 steps: the two newest checkpoints, each with two moments of a weight, and the best weights."""
    start = prepared("smoke", f"train.save_every={save_every}", vocab_size=512, tokens=196_489)
    assert start.disk_bytes == 4 * start.costs.parameters * (3 * num_checkpoints + 1)


def test_a_training_that_nobody_has_begun_says_how_to_run_it() -> None:
    training = Training(report for report in [Finished({**SUMMARY, "validation_loss": None}, 2, None)])
    assert repr(training) == "<Training: nothing has run yet; finish() trains to the end>"
    training.finish()
    assert repr(training) == "<Training: runs/a: 1,200 steps>"


def test_a_training_computes_with_its_threads_and_the_caller_with_others() -> None:
    before = torch.get_num_threads()

    def events() -> Generator[Any, None, None]:
        torch.set_num_threads(before + 1)
        yield "begun"
        yield torch.get_num_threads()

    training = Training(events())
    next(training)
    assert torch.get_num_threads() == before
    assert next(training) == before + 1
