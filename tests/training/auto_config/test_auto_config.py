"""The time of a reference step, by which a budget is measured."""

from __future__ import annotations

import pytest
from support.accelerator import Accelerator
from support.simulated_graph import give_graphs

from gpt_cli.config import Config
from gpt_cli.training.auto_config import auto_config


def test_a_device_that_records_steps_is_timed_as_it_will_train(
    accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that a GPU repeats takes a tenth of the time of one that Python starts, so the other would mislead."""
    small = auto_config.REFERENCE.changed(context_length=8, d_model=16, num_heads=2, num_blocks=1)
    monkeypatch.setattr(auto_config, "REFERENCE", small)
    monkeypatch.setattr(auto_config, "TIMING_SECONDS", 0.0)
    monkeypatch.setattr(auto_config, "_QUICK", 0.0)
    graphs = give_graphs(accelerator)
    assert auto_config.reference_seconds(Config().changed(train={"device": "sim"})) > 0
    assert graphs[-1].num_replays == 2 + 1  # twice to try the record, and the step that is timed
    assert auto_config.reference_seconds(Config().changed(train={"device": "sim", "graph": "off"})) > 0
    assert graphs[-1].num_replays == 2 + 1
