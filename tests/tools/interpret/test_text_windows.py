"""Checkpoints of a run that do not belong together."""

from __future__ import annotations

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
