from __future__ import annotations

import pytest
import torch
from support.helpers import small_config

from gpt_cli.errors import EnvironmentFailure
from gpt_cli.training import memory_checks
from gpt_cli.training.lr_schedule import lr_multiplier
from gpt_cli.training.memory_checks import fitting_device, resolve


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


@pytest.mark.parametrize(("batch_size", "hint"), [(8, "‹train.micro_batch_size=4›"), (1, "choose a smaller model")])
def test_where_a_graph_holds_memory_of_the_device_doing_without_is_an_advice(batch_size: int, hint: str) -> None:
    config = small_config(f"train.batch_size={batch_size}")
    for recorded, before in ((False, ""), (True, "‹train.graph=off›, or ")):
        with pytest.raises(EnvironmentFailure) as raised, fitting_device(config, recorded=recorded):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        assert raised.value.hint == f"{before}{hint}; or ‹device=cpu›"


def test_a_timed_step_decides_about_compiling_where_steps_end_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*settings: str) -> str:
        return resolve(small_config("train.compile=auto", *settings), pytest.fail).train.compile

    assert found() == "off"  # a CPU
    monkeypatch.setattr(memory_checks, "choose_compile", lambda *_, long: "on" if long else "off")  # as on a GPU
    assert found() == "auto"
    assert [found(f"train.max_time={seconds}") for seconds in (59, 60)] == ["off", "on"]
