"""The look at the text and at the device, before the rules choose settings."""

from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.accelerator import Accelerator
from support.helpers import CORPUS_TEXT
from support.simulated_graph import give_graphs

from gpt_cli.common.host import NOBODY
from gpt_cli.config import Config
from gpt_cli.training.auto_config import auto_config
from gpt_cli.training.auto_config.text_statistics import TextFigures


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


def test_a_device_starts_while_the_text_is_measured(
    accelerator: Accelerator, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is measured only once the device has computed, which a thread lets it do."""
    computed, measure = Event(), auto_config._figures
    accelerator.listeners.append(lambda op, *_: computed.set() if "mm" in str(op) else None)

    def measure_later(*words: Any) -> TextFigures:
        assert computed.wait(60)
        return measure(*words)

    monkeypatch.setattr(auto_config, "_figures", measure_later)
    Path("a.txt").write_text(CORPUS_TEXT, encoding="utf-8")
    config = Config().changed(data={"source": "a.txt"}, train={"device": "sim", "max_steps": 10})
    assert auto_config.choose_config(config, NOBODY)[0].num_steps == 10


def test_without_a_limit_of_steps_the_machine_is_timed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_config, "reference_seconds", lambda _: 0.05)
    Path("a.txt").write_text(CORPUS_TEXT, encoding="utf-8")
    config = Config().changed(data={"source": "a.txt"}, train={"max_steps": None, "max_time": None})
    choice, _ = auto_config.choose_config(config, NOBODY)
    assert "enough for about 6,000 steps of the config tiny" in choice.reasons[1]  # five minutes


def test_the_time_of_a_run_is_estimated_with_the_vocabulary_of_its_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_config, "reference_seconds", lambda _: 0.05)
    tokenizers = ({"kind": "byte"}, {"vocab_size": 257}, {"kind": "tiktoken"}, {"vocab_size": 50_257})
    config = Config().changed(train={"max_steps": 100})
    byte, few, tiktoken, many = auto_config.seconds_of([config.changed(tokenizer=each) for each in tokenizers])
    assert byte == few < tiktoken == many
