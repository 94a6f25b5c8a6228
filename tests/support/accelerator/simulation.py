"""A simulated accelerator: what a test may change of it and count on it, and how torch comes to know it."""

from __future__ import annotations

import contextlib
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils.backend_registration as registration
from torch import Tensor
from torch.nn.utils import clip_grad
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype

from gpt_cli.common.machine.devices import supports
from gpt_cli.training import cuda_graphs
from support.accelerator import autocasting
from support.accelerator.computing import Computing, Lacking
from support.accelerator.copies import Copies
from support.accelerator.memory import Pool
from support.accelerator.tensors import DEVICE, Numbered, SimTensor

# these reach a device with the Python key off, or change the shape of what they write to
_FACTORIES = """
empty.memory_format empty_strided _copy_from _to_copy arange arange.start arange.start_step range.step eye eye.m
"""
_SEED_OF_DEVICES = 0x51A1  # a generator of a device gives other numbers than one of the CPU
Listener = Callable[[Any, list[Any], dict[str, Any], Any], None]


def missing() -> str:
    """Why this torch cannot have a simulated accelerator; empty where it can."""
    if hasattr(registration, "_setup_privateuseone_for_python_backend"):
        return ""
    return f"torch {torch.__version__} takes no device that is written in Python"


class Accelerator:
    """Devices sim:0, sim:1 ...; `begin` makes torch know them, for the rest of the process."""

    def __init__(self, num_devices: int = 1) -> None:
        self.num_devices = num_devices
        self.available = True
        self._generators: dict[int, torch.Generator] = {}
        self._libraries: list[torch.library.Library] = []
        self.reset()

    def reset(self) -> None:
        """Make the devices new: nothing was allocated, copied or counted, and they lack nothing."""
        self.pools = [Pool() for _ in range(self.num_devices)]
        self.copies = Copies()
        self.lacking = Lacking()
        # called after each operation on the device with what was computed within: op, args, kwargs, outputs
        self.listeners: list[Listener] = []
        self.compute = Computing(self)
        self.current = 0  # the number of the device that `sim` means

    @contextlib.contextmanager
    def lent(self) -> Iterator[Accelerator]:
        """New devices for a test, which may change what torch says of them; raises StaleCopy at its end."""
        self.reset()
        supports.cache_clear()
        replaced, stream, event = dict(vars(torch.accelerator)), torch.Stream, torch.Event
        self.available = True
        for name in (DEVICE, *(f"{DEVICE}:{number}" for number in range(self.num_devices))):
            supports(torch.device(name), "pinned")  # tried with copies, which no test should count
        self.reset()
        try:
            yield self
            self.copies.arrive()
        finally:
            self.available = False
            for name, function in replaced.items():
                setattr(torch.accelerator, name, function)
            torch.Stream, torch.Event = stream, event  # type: ignore[misc]
            cuda_graphs.time = time
            torch._C._set_deterministic_algorithms(False)

    @property
    def syncs(self) -> list[str]:
        """What made the host wait so far, and where."""
        return [str(event) for event in self.copies.syncs]

    def resize(self, num_bytes: int, number: int = 0) -> None:
        """Limit the memory of a device."""
        self.pools[number].size = num_bytes

    def lacks(self, *what: torch.dtype | str) -> None:
        """Take number formats, operations such as aten::cumsum, `deterministic` algorithms, or `pinned` memory away."""
        supports.cache_clear()
        for each in what:
            if isinstance(each, torch.dtype):
                self.lacking.dtypes.add(each)
            elif each == "deterministic":
                self.lacking.deterministic = True
            elif each == "pinned":
                self.copies.can_pin = False
            else:
                assert each.startswith("aten::"), each
                self.lacking.operations.add(each)

    def number_of(self, device: Any) -> int:
        """The number of a device; raises RuntimeError where there is none of that number."""
        number = device if isinstance(device, int) else None if device is None else torch.device(device).index
        number = self.current if number is None else number
        if not 0 <= number < len(self.pools):
            raise RuntimeError(f"invalid device ordinal: sim:{number}, of {len(self.pools)} devices")
        return number

    def require_generator(self, generator: torch.Generator, number: int) -> None:
        """Raise RuntimeError unless a generator belongs to a device."""
        ours = self._generators.get(generator._cdata)  # type: ignore[attr-defined]
        found = "cpu" if ours is None else str(ours.device)
        if found != f"{DEVICE}:{number}":
            raise RuntimeError(f"Expected a 'sim:{number}' device type for generator but found '{found}'")

    def begin(self) -> None:
        """Register the devices with torch: before the first gradient of the process, and once."""
        assert not missing()
        SimTensor.accelerator = self
        module = _module(self)
        registration._setup_privateuseone_for_python_backend(
            DEVICE, backend_module=module, hook=_Hooks(), device_guard=_Guard()
        )
        every = torch.library.Library("_", "IMPL")
        every.fallback(lambda op, *args, **kwargs: self.compute(op, args, kwargs), "PrivateUse1")
        aten = torch.library.Library("aten", "IMPL")
        for name in _FACTORIES.split():
            packet, _, overload = name.partition(".")
            aten.impl(
                name, self._kernel(getattr(getattr(torch.ops.aten, packet), overload or "default")), "PrivateUse1"
            )
        self._libraries = [every, aten]
        autocasting.register(self._libraries)
        for name in dir(module):
            if not name.startswith("_") and hasattr(torch.accelerator, name) and name != "is_available":
                setattr(torch.accelerator, name, getattr(module, name))
        clip_grad._group_tensors_by_device_and_dtype = _grouped_by_number  # type: ignore[assignment]
        torch.Generator = _generator_class(self)  # type: ignore[misc]
        torch.Tensor.pin_memory = lambda tensor, device=None: self.copies.pin(tensor)  # type: ignore[method-assign]
        torch.Tensor.is_pinned = lambda tensor, device=None: self.copies.is_pinned(tensor)  # type: ignore[method-assign]
        Numbered(self).__enter__()
        _spare_import()

    def _kernel(self, op: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.compute(op, args, kwargs)

    def keep_generator(self, generator: torch.Generator) -> None:
        self._generators[generator._cdata] = generator  # type: ignore[attr-defined]


def _spare_import() -> None:
    """Compute once with a stand-in for DTensor, for which torch would import two seconds of modules then."""
    name = "torch.distributed.tensor"
    if name not in sys.modules:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].DTensor = type("DTensor", (Tensor,), {})  # type: ignore[attr-defined]
        torch.ones((), device=DEVICE).add(1)
        del sys.modules[name]


class _Hooks(registration._DummyPrivateUse1Hook):
    pass


class _Guard(registration._DummyDeviceGuard):
    pass


def _module(accelerator: Accelerator) -> types.ModuleType:
    """The module torch.sim; functions of torch.accelerator with these names become the same ones."""
    number = accelerator.number_of

    class device_index:  # noqa: N801 - as torch calls it
        def __init__(self, device: Any) -> None:
            self.wanted = device

        def __enter__(self) -> None:
            self.before = accelerator.current
            accelerator.current = number(self.wanted)

        def __exit__(self, *_: object) -> None:
            accelerator.current = self.before

    def set_device_index(device: Any, /) -> None:
        accelerator.current = number(device)

    def synchronize(device: Any = None, /) -> None:
        number(device)
        accelerator.copies.synchronize("synchronize")

    def get_memory_info(device: Any = None, /) -> tuple[int, int]:
        pool = accelerator.pools[number(device)]
        return pool.size - pool.allocated, pool.size

    def memory_allocated(device: Any = None, /) -> int:
        return accelerator.pools[number(device)].allocated

    def max_memory_allocated(device: Any = None, /) -> int:
        return accelerator.pools[number(device)].peak

    def reset_peak_memory_stats(device: Any = None, /) -> None:
        pool = accelerator.pools[number(device)]
        pool.peak = pool.allocated

    module = types.ModuleType(f"torch.{DEVICE}")
    functions: dict[str, Any] = {
        "is_available": lambda: accelerator.available,
        "is_initialized": lambda: True,
        "device_count": lambda: accelerator.num_devices,
        "current_device": lambda: accelerator.current,
        "current_device_index": lambda: accelerator.current,
        "set_device": set_device_index,
        "set_device_index": set_device_index,
        "device_index": device_index,
        "synchronize": synchronize,
        "get_memory_info": get_memory_info,
        "mem_get_info": get_memory_info,
        "memory_allocated": memory_allocated,
        "memory_reserved": memory_allocated,
        "max_memory_allocated": max_memory_allocated,
        "max_memory_reserved": max_memory_allocated,
        "reset_peak_memory_stats": reset_peak_memory_stats,
        "empty_cache": lambda: None,
        "get_device_name": lambda device=None: "simulated accelerator",
        "get_amp_supported_dtype": lambda: [torch.bfloat16, torch.float16],
        "manual_seed_all": lambda seed: None,
        "_is_in_bad_fork": lambda: False,
    }
    for name, function in functions.items():
        setattr(module, name, function)
    return module


def _grouped_by_number(
    tensors: Any, with_indices: bool = False, group: Any = _group_tensors_by_device_and_dtype
) -> Any:
    """Groups of tensors by their devices, where C++ would take all devices of a simulated kind for the first one."""
    groups = group(tensors, with_indices)
    return {(found[0][0][0].device, dtype): found for (_, dtype), found in groups.items()}


def _generator_class(accelerator: Accelerator) -> type:
    plain = torch.Generator

    class Generator(plain):  # type: ignore[misc, valid-type]
        number: int

        def __new__(cls, device: Any = "cpu") -> Any:
            if torch.device(device).type != DEVICE:
                return plain(device)
            self = super().__new__(cls)
            self.number = accelerator.number_of(device)
            accelerator.keep_generator(self)
            return self

        @property
        def device(self) -> torch.device:  # type: ignore[override]
            return torch.device(DEVICE, self.number)

        def manual_seed(self, seed: int) -> Any:
            super().manual_seed(seed ^ _SEED_OF_DEVICES)
            return self

    return Generator


def on_cpu(tensor: Tensor) -> Tensor:
    """The numbers of a tensor, for a test to compare, without a copy that counts."""
    return tensor.held.clone() if isinstance(tensor, SimTensor) else tensor
