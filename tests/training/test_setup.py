from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.accelerator import Accelerator
from support.helpers import CORPUS_TEXT, small_config

from gpt_cli.common.host import NOBODY
from gpt_cli.text.load import SourceCorpus
from gpt_cli.training import setup, start
from gpt_cli.training.events import Finished
from gpt_cli.training.lr_schedule import lr_multiplier
from gpt_cli.training.request import Plan
from gpt_cli.training.setup import resolve


def test_a_warm_up_longer_than_the_run_is_shortened_and_told() -> None:
    notices: list[str] = []
    config = resolve(small_config("train.warmup_steps=8", "tokenizer.vocab_size=300"), notices.append)
    assert lr_multiplier(3, config.train) == 1.0
    assert notices == [
        "warm-up of 8 steps shortened to 4, half of the run",
        "tokenizer.vocab_size is not used by tokenizer.kind byte",
    ]


def test_a_timed_step_decides_about_compiling_where_steps_end_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*settings: str) -> str:
        return resolve(small_config("train.compile=auto", *settings), pytest.fail).train.compile

    assert found() == "off"  # a CPU
    monkeypatch.setattr(setup, "choose_compile", lambda *_, long: "on" if long else "off")  # as on a GPU
    assert found() == "auto"
    assert [found(f"train.max_time={seconds}") for seconds in (59, 60)] == ["off", "on"]


def test_a_device_starts_beside_the_text(accelerator: Accelerator, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is read only once the device has computed, which a thread lets it do."""
    computed, read = Event(), start.read_data
    accelerator.listeners.append(lambda op, *_: computed.set() if "mm" in str(op) else None)

    def read_later(*words: Any) -> SourceCorpus:
        assert computed.wait(60)
        return read(*words)

    monkeypatch.setattr(start, "read_data", read_later)
    Path("a.txt").write_text(CORPUS_TEXT, encoding="utf-8")
    config = small_config("data.source=a.txt").changed(train={"device": "sim"})
    made = setup.setup(Plan(directory=Path("run"), config=config), NOBODY)
    assert not isinstance(made, Finished)
    assert made[0].state.device.type == "sim"
