"""The simulated accelerator itself: it computes as the CPU does, and refuses, counts and waits as a real device does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.accelerator import Accelerator, on_cpu
from support.accelerator.copies import STAGED_BYTES, StaleCopy
from torch import Tensor
from torch.nn import functional

from gpt_cli.common.machine.devices import choose_device, free_memory, synchronize


def test_auto_takes_it_within_such_a_test(accelerator: Accelerator) -> None:
    assert choose_device("auto") == torch.device("sim")
    assert choose_device("sim:1") == torch.device("sim:1")


def test_no_other_test_meets_it() -> None:
    assert torch.accelerator.current_accelerator() is None or not hasattr(torch, "sim")


def test_tensors_of_two_devices_do_not_meet(accelerator: Accelerator) -> None:
    ours, others, cpu = torch.ones(3, device="sim"), torch.ones(3, device="sim:1"), torch.ones(3)
    for wrong in (others, cpu):
        for compute in (lambda w: ours + w, lambda w: torch.stack([w, ours]), lambda w: ours[w.long()]):
            with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
                compute(wrong)
    # a number of the CPU may join
    assert on_cpu(ours * torch.tensor(2.0) + others.to(device="sim:0")).tolist() == [3, 3, 3]
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(3, device="sim:2")


def test_the_host_waits_where_it_reads_a_number(accelerator: Accelerator) -> None:
    x = torch.arange(6, device="sim").float()
    y = (x * 2).reshape(2, 3).sum(0)
    assert accelerator.syncs == []
    readings: list[Callable[[], Any]] = [
        y.sum().item,
        y.tolist,
        y.cpu,
        lambda: bool(y[0] > 1),
        lambda: float(y[0]),
        lambda: torch.equal(x, x),
        lambda: x[x > 2],
        x.nonzero,
        lambda: torch.tensor([1.0], device="sim"),
        torch.accelerator.synchronize,
    ]
    for number, read in enumerate(readings, 1):
        read()
        assert len(accelerator.syncs) == number, accelerator.syncs[-1]
        assert "tests/devices/test_simulation.py:" in accelerator.syncs[-1]
    assert [event.num_bytes for event in accelerator.copies.to_host] == [12]


def test_numpy_needs_a_copy(accelerator: Accelerator) -> None:
    x = torch.ones(2, device="sim")
    with pytest.raises(TypeError, match=r"Use Tensor\.cpu\(\)"):
        x.numpy()
    assert x.cpu().numpy().tolist() == [1, 1]


def test_a_copy_to_the_host_has_no_meaning_before_somebody_waits(accelerator: Accelerator) -> None:
    x = torch.ones(2, device="sim")
    host, ids = (each.to("cpu", non_blocking=True) for each in (x, x.long()))
    x.zero_()  # comes after the copy on the device
    assert host.isnan().all()
    assert ids.tolist() != [1, 1]
    synchronize(x.device)
    assert host.tolist() == ids.tolist() == [1, 1]


def test_host_memory_stays_as_it_is_until_its_copy_was_waited_for(accelerator: Accelerator) -> None:
    host = torch.ones(4)
    device = host.to("sim", non_blocking=True)
    host[2] = 5  # a buffer that is used again too early
    with pytest.raises(StaleCopy, match=r"test_simulation\.py"):
        torch.accelerator.synchronize()
    assert on_cpu(device).tolist() == [1, 1, 5, 1]
    _ = host.to("sim", non_blocking=True)
    torch.accelerator.synchronize()
    host[2] = 1


def test_a_large_copy_waits_unless_its_memory_is_pinned(accelerator: Accelerator) -> None:
    host = torch.zeros(STAGED_BYTES // 4 + 1)
    _ = host.pin_memory()[1:].to("sim", non_blocking=True)
    assert host.pin_memory().is_pinned()
    assert not host.is_pinned()
    assert accelerator.syncs == []
    _ = host.to("sim", non_blocking=True)
    assert len(accelerator.syncs) == 1


def test_memory_is_that_of_live_tensors_and_has_an_end(accelerator: Accelerator) -> None:
    accelerator.resize(1000)
    x = torch.zeros(100, device="sim")  # 400 bytes
    view = x[:50].view(5, 10)
    assert torch.accelerator.memory_allocated() == 400
    with pytest.raises(torch.OutOfMemoryError, match="sim out of memory"):
        _ = [x + 1, x + 2]
    assert torch.accelerator.max_memory_allocated() == 800
    del x
    assert free_memory(torch.device("sim")) == 600
    assert free_memory(torch.device("sim:1")) == 2**40
    del view
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.memory_allocated() == torch.accelerator.max_memory_allocated() == 0


def test_a_generator_belongs_to_one_device(accelerator: Accelerator) -> None:
    x = torch.empty(3, device="sim")
    of_sim, of_cpu = (torch.Generator(device).manual_seed(1) for device in ("sim", "cpu"))
    assert on_cpu(x.uniform_(generator=of_sim)).tolist() != torch.rand(3, generator=of_cpu).tolist()
    for wrong in (of_cpu, torch.Generator("sim:1")):
        with pytest.raises(RuntimeError, match="device type for generator"):
            x.uniform_(generator=wrong)


def test_what_a_device_lacks_it_refuses(accelerator: Accelerator) -> None:
    accelerator.lacks(torch.float64, "aten::cumsum", "deterministic")
    x = torch.ones(3, device="sim")
    with pytest.raises(TypeError, match=r"torch\.float64"):
        x.double()
    with pytest.raises(NotImplementedError, match="aten::cumsum"):
        x.cumsum(0)
    # as torch.use_deterministic_algorithms does, after two seconds of imports
    torch._C._set_deterministic_algorithms(True)
    with pytest.raises(RuntimeError, match="deterministic"):
        x.index_add_(0, torch.zeros(3, dtype=torch.int64, device="sim"), x.clone())


def test_the_operations_of_a_view_and_its_mode_are_those_of_the_cpu(accelerator: Accelerator) -> None:
    with torch.inference_mode():
        within = {device: torch.ones(4, device=device) for device in ("cpu", "sim")}
    outside = {device: torch.ones(4, device=device) for device in ("cpu", "sim")}
    ways: list[Callable[[Tensor], Tensor]] = [
        Tensor.detach,
        lambda t: t.view(2, 2),
        lambda t: t[1:],
        lambda t: t + 1,
        lambda t: t.view(2, 2) @ t.view(2, 2),
        lambda t: t.to(torch.bfloat16),
    ]
    for tensors in (within, outside):
        for way in ways:
            for inference in (True, False):
                with torch.inference_mode(inference):
                    one, other = (way(tensors[device]) for device in ("cpu", "sim"))
                assert one.is_inference() == other.is_inference()
                assert one.tolist() == other.tolist()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        _ = within["sim"] * outside["sim"].requires_grad_()


PRODUCTS = ("linear", "matmul", "bmm", "attention")
CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: functional.linear(x, x),
    "matmul": lambda x: x @ x,
    "bmm": lambda x: torch.bmm(x[None], x[None]),
    "attention": lambda x: functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    "add": lambda x: x + 1,
    "gelu": functional.gelu,
    "softmax": lambda x: x.softmax(-1),
    "layer norm": lambda x: functional.layer_norm(x, (4,)),
    "rms norm": lambda x: functional.rms_norm(x, (4,)),
    "cross entropy": lambda x: functional.cross_entropy(x, torch.zeros(4, dtype=torch.int64, device=x.device)),
    "sum": lambda x: x.sum(),
}


def test_autocast_multiplies_in_bfloat16_and_adds_in_float32(accelerator: Accelerator) -> None:
    """Products are rounded as the CPU rounds them; sums and losses are more exact than its, as torch lists them for GPUs."""
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(7))
    for name, way in CASES.items():
        found = {}
        for device in ("cpu", "sim"):
            with torch.autocast(device, dtype=torch.bfloat16):
                of_float32, of_bfloat16 = way(x.to(device)), way(x.to(device, torch.bfloat16))
            found[device] = (of_float32.dtype, of_bfloat16.dtype)
            if name in PRODUCTS:
                assert torch.equal(on_cpu(of_float32), way(x.bfloat16())), name
        low, full = torch.bfloat16, torch.float32
        if name in PRODUCTS:
            assert found["sim"] == found["cpu"] == (low, low), name
        elif name in ("add", "gelu"):
            assert found["sim"] == found["cpu"] == (full, low), name
        else:
            assert found["sim"] == (full, full), name
