"""A tensor of a simulated device: a CPU tensor that nobody else reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from support.accelerator.memory import Block
    from support.accelerator.simulation import Accelerator

DEVICE = "sim"


class SimTensor(Tensor):
    """`held` is the CPU tensor with its numbers; views share its `block` of the device's memory.

    The C++ part of torch knows one device of a simulated kind, so the number of the device is kept in Python.
    """

    accelerator: ClassVar[Accelerator]
    held: Tensor
    number: int
    block: Block | None
    address: int

    @staticmethod
    def __new__(cls, held: Tensor, number: int, block: Block | None, address: int) -> SimTensor:
        self = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(DEVICE, 0),
        )
        self.held, self.number, self.block, self.address = held, number, block, address
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return cls.accelerator.compute(op, args, kwargs or {})

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device(DEVICE, self.number)

    def get_device(self) -> int:
        return self.number

    @property
    def data(self) -> Tensor:  # type: ignore[override]
        return self.detach()

    @data.setter
    def data(self, value: SimTensor) -> None:
        Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.held, self.number, self.block, self.address = value.held, value.number, value.block, value.address

    def to(self, *args: Any, copy: bool = False, **kwargs: Any) -> Tensor:
        """As of every tensor; a device of another number is another device."""
        if args and isinstance(args[0], Tensor):
            args = (args[0].device, args[0].dtype, *args[1:])
        if "device" in kwargs:  # which `Numbered` would rename
            args = (kwargs.pop("device"), *args)
        parse_to = torch._C._nn._parse_to  # type: ignore[attr-defined]
        device, dtype, non_blocking, memory_format = parse_to(*args, **kwargs)
        more = {"dtype": dtype or self.dtype, "non_blocking": non_blocking, "memory_format": memory_format}
        if device is None or (device.type == DEVICE and self.accelerator.number_of(device) == self.number):
            return super().to(copy=copy, **more)
        if device.type != DEVICE:
            return super().to(device=device, copy=copy, **more)
        self.accelerator.compute.moves_to = self.accelerator.number_of(device)
        return torch.ops.aten._to_copy(self, device=torch.device(DEVICE), **more)

    def new_tensor(self, data: Any, **kwargs: Any) -> Tensor:  # type: ignore[override]
        return torch.tensor(data, **{"dtype": self.dtype, "device": self.device, **kwargs})

    def tolist(self) -> Any:
        self.accelerator.copies.synchronize("tolist")
        return self.held.tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy it to host memory first."
        )

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:
            copied = self.detach().clone().requires_grad_(self.requires_grad)
            memo[id(self)] = torch.nn.Parameter(copied) if isinstance(self, torch.nn.Parameter) else copied
        return memo[id(self)]

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{self.held.__repr__()[:-1]}, device='{self.device}')"


class Numbered(TorchFunctionMode):
    """Tells operations the numbers of devices that Python names: sim:1 for sim:0, and so on.

    sim:0 itself is how C++ names the device of each tensor.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if kwargs and kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": self._named(kwargs["device"])}
        if func is Tensor.to and len(args) > 1:
            args = (args[0], self._named(args[1]), *args[2:])
        return func(*args, **(kwargs or {}))

    def _named(self, device: Any) -> Any:
        if isinstance(device, str):
            device = torch.device(device)
        if isinstance(device, torch.device) and device.type == DEVICE:
            return torch.device(DEVICE, self.accelerator.number_of(device) + 1)
        return device
