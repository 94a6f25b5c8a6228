import pytest
import torch

from gpt_cli import machine as module
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.machine import autocast, choose_compile, choose_device, choose_dtype

CPU = torch.device("cpu")


def test_a_missing_device_is_an_error_that_says_what_torch_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(
        EnvironmentFailure, match=r"^device: cuda:2 is not available, because torch .* finds 2 CUDA devices$"
    ):
        choose_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == CPU
    with pytest.raises(EnvironmentFailure, match="finds no CUDA device"):
        choose_device("cuda")


def test_auto_takes_bfloat16_if_the_processor_multiplies_it_and_the_model_is_wide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "cpu_multiplies_bfloat16", lambda: True)
    assert (choose_dtype("auto", CPU, 512), choose_dtype("auto", CPU, 32)) == ("bfloat16", "float32")
    assert choose_dtype("float32", CPU, 512) == "float32"
    monkeypatch.setattr(module, "cpu_multiplies_bfloat16", lambda: False)
    assert choose_dtype("auto", CPU, 512) == "float32"
    assert choose_dtype("bfloat16", CPU, 32) == "bfloat16"


def test_products_are_computed_in_the_chosen_type() -> None:
    x = torch.ones(2, 2)
    with autocast(CPU, "bfloat16"):
        assert (x @ x).dtype == torch.bfloat16
    with autocast(CPU, "float32"):
        assert (x @ x).dtype == torch.float32


def test_auto_compiles_long_trainings_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert [choose_compile("auto", cuda, long=long) for long in (False, True)] == ["off", "on"]
    assert choose_compile("auto", cpu, long=True) == "off"
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert choose_compile("off", cpu, long=True) == "off"
    with pytest.raises(EnvironmentFailure) as raised:
        choose_compile("on", cpu, long=False)
    assert raised.value.lines() == [
        "error: train.compile: compiling for a CPU needs a C++ compiler, and no-such-compiler is not on the path",
        "hint: --compile off",
    ]
    assert choose_compile("on", cuda, long=False) == "on"
