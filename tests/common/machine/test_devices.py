from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from support.accelerator import Accelerator, on_cpu

from gpt_cli.common.machine import devices
from gpt_cli.errors import EnvironmentFailure

CPU = torch.device("cpu")


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)


@pytest.mark.usefixtures("two_gpus")
def test_auto_takes_the_accelerator_that_is_there() -> None:
    assert devices.choose_device("auto") == devices.choose_device("cuda") == torch.device("cuda")
    assert devices.choose_device("cuda:1") == torch.device("cuda:1")
    assert devices.choose_device("cpu") == CPU


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("name", ["cuda:2", "mps", "auto:1", "gpu"])
def test_a_missing_device_is_an_error_that_says_what_torch_finds(name: str) -> None:
    with pytest.raises(EnvironmentFailure) as raised:
        devices.choose_device(name)
    assert raised.value.lines() == [
        f"error: device: {name} is not available, because torch {torch.__version__} finds 2 cuda devices",
        "hint: --device cuda",
    ]


def test_without_an_accelerator_auto_is_the_cpu() -> None:
    if devices.accelerator() is None:
        assert devices.choose_device("auto") == CPU
        with pytest.raises(EnvironmentFailure, match=r"finds no accelerator$"):
            devices.choose_device("cuda")


def test_a_cpu_has_float64_and_bfloat16_but_neither_pinned_memory_nor_graphs() -> None:
    abilities = ("float64", "bfloat16", "pinned", "graphs")
    assert [devices.supports(CPU, what) for what in abilities] == [True, True, False, False]
    assert devices.free_memory(CPU) is None


def test_what_a_device_refuses_it_does_not_support(monkeypatch: pytest.MonkeyPatch) -> None:
    notices: list[str] = []
    lacking = torch.device("mps")  # nowhere with float64
    assert not devices.supports(lacking, "float64")
    monkeypatch.setattr(devices, "supports", lambda *_: False)
    assert devices.choose_dtype("bfloat16", CPU, 32, notices.append) == "float32"
    assert notices == ["cpu does not support bfloat16 products, so gpt computes them in float32"]


def test_a_processor_of_arm_linux_which_has_no_model_name_is_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_of_processor", {"CPU implementer": "0x41", "CPU part": "0xd0c"}.get)
    monkeypatch.setattr(devices.platform, "machine", lambda: "aarch64")
    assert devices.processor() == "aarch64 0x41 0xd0c"


def test_memory_that_is_not_pinned_may_change_once_it_was_sent(
    accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mps reads such memory later, whoever has it then."""
    monkeypatch.setattr(devices, "supports", lambda *_: False)
    numbers = torch.ones(4)
    sent = devices.to_device(numbers, torch.device("sim"))
    numbers.zero_()
    accelerator.copies.arrive()
    assert on_cpu(sent).tolist() == [1, 1, 1, 1]


def test_cuda_records_on_the_stream_and_the_device_that_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own choice is a stream of the current device, on which nothing of another one is recorded."""
    graph, recorded = SimpleNamespace(replay="replay"), list[object]()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.cuda, "graph", lambda *into, stream: nullcontext(recorded.extend((*into, stream))))
    assert devices.record_graph(torch.device("cuda:1"), recorded.copy) == ("replay", [graph, "stream of cuda:1"])


def test_auto_takes_bfloat16_if_the_processor_multiplies_it_and_the_model_is_wide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "cpu_multiplies_bfloat16", lambda: True)
    assert (devices.choose_dtype("auto", CPU, 512), devices.choose_dtype("auto", CPU, 32)) == ("bfloat16", "float32")
    assert devices.choose_dtype("float32", CPU, 512) == "float32"
    monkeypatch.setattr(devices, "cpu_multiplies_bfloat16", lambda: False)
    assert devices.choose_dtype("auto", CPU, 512) == "float32"
    assert devices.choose_dtype("bfloat16", CPU, 32) == "bfloat16"


def test_auto_computes_in_float32_on_mps_where_bfloat16_is_no_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "supports", lambda *_: True)
    for asked, chosen in (("auto", "float32"), ("bfloat16", "bfloat16")):
        assert devices.choose_dtype(asked, torch.device("mps"), 512) == chosen


def test_a_new_gpu_needs_no_trial_for_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial would start the GPU, which a thread does while the text is read."""
    monkeypatch.setattr(devices, "supports", lambda *_: pytest.fail("a trial"))
    for capable, expected in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, c=capable: c)
        assert devices.choose_dtype("auto", torch.device("cuda"), 512) == expected


def test_auto_compiles_long_trainings_where_triton_is(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr(devices, "find_spec", lambda _: None)
    assert devices.choose_compile("auto", cuda, long=True) == "off"
    monkeypatch.setattr(devices, "find_spec", lambda name: name)
    assert [devices.choose_compile("auto", cuda, long=long) for long in (False, True)] == ["off", "on"]
    assert devices.choose_compile("auto", cpu, long=True) == "off"
    assert devices.choose_compile("off", cpu, long=True) == "off"
    assert devices.choose_compile("on", cpu, long=False) == "on"
    assert devices.choose_compile("on", cuda, long=False) == "on"
