from __future__ import annotations

import pytest
from support.helpers import small_config

from gpt_cli.training import setup
from gpt_cli.training.lr_schedule import lr_multiplier
from gpt_cli.training.setup import resolve


def test_a_warm_up_longer_than_the_run_is_shortened_and_told() -> None:
    notices: list[str] = []
    config = resolve(small_config("train.warmup_steps=8", "tokenizer.vocab_size=300"), notices.append)
    assert lr_multiplier(3, config.train) == 1.0
    assert notices == [
        "warm-up of 8 steps shortened to 4, half of the run",
        "tokenizer.vocab_size is not used by tokenizer.kind byte",
    ]


def test_settings_that_do_nothing_are_told() -> None:
    notices: list[str] = []
    settings = ["train.muon_learning_rate=0.1", "model.ngram_rows=9", "train.warmup_steps=1"]
    resolve(small_config(*settings, "inspect.every=5"), notices.append)
    assert notices == [
        "model.ngram_rows is not used by model.ngram_embedding null",
        "train.muon_learning_rate is not used by train.optimizer adamw",
        "inspect.every is not used by inspect.prompt null",
    ]
    notices.clear()
    used = ["train.optimizer=muon", "model.ngram_embedding=2"]
    resolve(small_config(*settings, *used), notices.append)
    assert notices == []


def test_a_timed_step_decides_about_compiling_where_steps_end_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*settings: str) -> str:
        return resolve(small_config("train.compile=auto", *settings), pytest.fail).train.compile

    assert found() == "off"  # a CPU
    monkeypatch.setattr(setup, "choose_compile", lambda *_, long: "on" if long else "off")  # as on a GPU
    assert found() == "auto"
    assert [found(f"train.max_time={seconds}") for seconds in (59, 60)] == ["off", "on"]
