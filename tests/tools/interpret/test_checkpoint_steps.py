"""Checkpoints of a run that do not belong together, and steps at which there is nothing to recover."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.helpers import RunCommand

SMALL = ("train", "--config", "smoke", "--max-steps", "10", "--quiet")
PATCH = ("patch", "--clean", "The value of", "--corrupt", "The name of", "--answer", " the")


@pytest.mark.parametrize("key", ["num_blocks", "num_heads"])
def test_a_step_of_another_shape_is_named(run: RunCommand, copied: Path, key: str) -> None:
    run(*SMALL, "--set", f"model.{key}=1", "--out", "runs/other", exits=0)
    shutil.copy("runs/other/checkpoints/step-00000010.safetensors", copied / "checkpoints")
    for words in (("lens",), PATCH):
        outcome = run(*words, "--over-training", "--run", str(copied), exits=4)
        assert 'step-00000010.safetensors": it is a model of another shape than' in outcome.err


def test_a_change_that_no_head_reaches_has_no_share_at_any_step(run: RunCommand, here: Path) -> None:
    run(*SMALL, "--set", "model.attention_window=2", "--out", "runs/near", exits=0)
    words = ("--clean", f"a {'x' * 12}", "--corrupt", f"b {'x' * 12}", "--answer", "a", "--against", "b")
    outcome = run("patch", "--run", "runs/near", *words, "--over-training", "--json")  # a warning would be an error
    assert outcome.code == 0, outcome.err
    (at,) = json.loads(outcome.out)["steps"]
    assert at["clean_metric"] == at["corrupt_metric"]
    assert {(row["recovered"], row["recovered_error"]) for row in at["rows"]} == {(None, None)}
