"""How a simulated device computes: on the tensors within its own, with the refusals of a real device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from support.accelerator.tensors import DEVICE, SimTensor

if TYPE_CHECKING:
    from support.accelerator.simulation import Accelerator

# operations that give the host a number
_READS = frozenset({"aten::_local_scalar_dense", "aten::equal", "aten::item"})
# operations whose results have as many elements as the numbers say, so that the host waits for these
_SIZED_BY_NUMBERS = frozenset(
    f"aten::{name}"
    for name in (
        *("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive"),
        *("repeat_interleave", "bincount"),
    )
)
_BY_MASK = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
# operations whose parallel forms add in any order
_NOT_DETERMINISTIC = frozenset(
    f"aten::{name}"
    for name in ("_index_put_impl_", "index_add_", "scatter_add", "scatter_add_", "embedding_dense_backward", "cumsum")
)
Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class Computing:
    """Computes every operation that meets a tensor of the simulated devices."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self._handlers: dict[Any, Handler] = {}
        self.moves_to: int | None = None
        self._last = 0

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        handler = self._handlers.get(op)
        if handler is None:
            handler = self._handlers[op] = self._handler(op)
        return handler(op, args, kwargs)

    def _handler(self, op: Any) -> Handler:
        name = op._schema.name
        if name == "aten::_to_copy":
            return self._to_copy
        if name == "aten::copy_":
            return lambda op, args, kwargs: self._copy(op, args[0], args[1], *args[2:], **kwargs)
        if name == "aten::_copy_from":
            return lambda op, args, kwargs: self._copy(op, args[1], args[0], *args[2:], **kwargs)
        if name in _READS:
            return self._read
        if name in _SIZED_BY_NUMBERS:
            return self._sized_by_numbers
        if name in _BY_MASK:
            return self._index
        # in inference mode, composite operations such as `to` and `matmul` arrive whole
        if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
            return self._decomposed
        return self.run

    def run(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute an operation of one device, and tell the listeners."""
        accelerator, met = self.accelerator, _Met()
        accelerator.lacking.refuse(op)
        inner_args = [met.enter(x, op) for x in args]
        inner_kwargs = {key: met.enter(x, op) for key, x in kwargs.items()}
        index = met.index
        if (device := kwargs.get("device")) is not None:
            if index is None:
                index = self._place(device)
            inner_kwargs["device"] = "cpu"
        if "pin_memory" in kwargs:
            inner_kwargs["pin_memory"] = None
        if index is not None:
            self._last = index
        for generator in met.generators:
            accelerator.require_generator(generator, index or 0)
        inner = op(*inner_args, **inner_kwargs)
        for listener in accelerator.listeners:
            listener(op, inner_args, inner_kwargs, inner)
        return self._leave(inner, met.tensors, index or 0)

    def _place(self, device: torch.device) -> int:
        """The number of the device that an operation names; in C++ all are sim:0, which then is where the last one was."""
        return device.index - 1 if device.index else self._last

    def _leave(self, inner: Any, met: list[SimTensor], index: int) -> Any:
        if isinstance(inner, Tensor):
            for tensor in met:
                if tensor.held is inner:
                    assert tensor.size() == inner.size(), "the simulation does not change the shape of a tensor"
                    return tensor
            return self.wrap(inner, met, index)
        if isinstance(inner, (tuple, list)):
            return type(inner)([self._leave(each, met, index) for each in inner])
        return inner

    def wrap(self, inner: Tensor, met: list[SimTensor], index: int) -> SimTensor:
        """A tensor of a device around one of the CPU, in memory that it may share with those of an operation."""
        self.accelerator.lacking.refuse_dtype(inner.dtype)
        storage = inner.untyped_storage()
        address = storage.data_ptr()
        block = next((tensor.block for tensor in met if tensor.address == address and address), None)
        block = block or self.accelerator.pools[index].take(storage.nbytes())
        if (inference := inner.is_inference()) == torch.is_inference_mode_enabled():
            return SimTensor(inner, index, block, address)
        # a view of a tensor is as the tensor is, whatever the mode in which it is taken
        with torch.inference_mode(inference):
            return SimTensor(inner, index, block, address)

    def _decomposed(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # not `op.decompose`, which imports and takes other ways in Python for some of them
        return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)

    def _read(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.accelerator.copies.synchronize(op._schema.name.removeprefix("aten::"))
        return self.run(op, args, kwargs)

    def _sized_by_numbers(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs.get("output_size") is None:
            self.accelerator.copies.synchronize(op._schema.name.removeprefix("aten::"))
        return self.run(op, args, kwargs)

    def _index(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if any(isinstance(x, Tensor) and x.dtype in (torch.bool, torch.uint8) for x in args[1]):
            self.accelerator.copies.synchronize("a mask as an index")
        return self.run(op, args, kwargs)

    def _to_copy(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        source, device = args[0], kwargs.get("device")
        device = source.device if device is None else torch.device(device)
        if isinstance(source, SimTensor) and device.type == DEVICE:
            # C++ names the device of the tensor itself; only `SimTensor.to` means another one
            number, self.moves_to = source.number if self.moves_to is None else self.moves_to, None
            result = self.run(op, args, {**kwargs, "device": None})
            return result if number == source.number else self.wrap(result.held, [], number)
        of_cpu = {**kwargs, "device": "cpu", "pin_memory": None, "non_blocking": False}
        if device.type == DEVICE:
            number = self._place(device)
            result = self.wrap(op(torch.empty_like(source, device="cpu"), **of_cpu), [], number)
            self.accelerator.copies.upload(source, result.held, kwargs.get("non_blocking", False))
            return result
        result = op(source.held, **of_cpu)
        if device.type == "cpu":
            self.accelerator.copies.download(source.held, result, kwargs.get("non_blocking", False))
        return result.to(device)

    def _copy(self, op: Any, to: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        if isinstance(to, SimTensor) and isinstance(source, SimTensor):
            to.held.copy_(source.held)
            for listener in self.accelerator.listeners:
                listener(torch.ops.aten.copy_.default, [to.held, source.held], {}, to.held)
        elif isinstance(to, SimTensor):
            self.accelerator.copies.upload(source, to.held, non_blocking)
        elif isinstance(source, SimTensor):
            self.accelerator.copies.download(source.held, to, non_blocking)
        else:
            to.copy_(source)
        return to


class _Met:
    """What an operation was given: tensors of one device, and generators."""

    def __init__(self) -> None:
        self.tensors: list[SimTensor] = []
        self.generators: list[torch.Generator] = []
        self.index: int | None = None
        self._of_cpu = False

    def enter(self, x: Any, op: Any) -> Any:
        """What the computation within is given for it; raises RuntimeError for a tensor of another device."""
        if isinstance(x, SimTensor):
            if self.index is None:
                self.index = x.number
            if x.number != self.index or self._of_cpu:
                self._refuse(op, f"sim:{x.number}", "cpu" if self._of_cpu else f"sim:{self.index}")
            self.tensors.append(x)
            return x.held
        if isinstance(x, Tensor):
            # a number that the CPU holds may join, as on CUDA
            if x.dim() > 0:
                if self.index is not None:
                    self._refuse(op, f"sim:{self.index}", str(x.device))
                self._of_cpu = True
            return x
        if isinstance(x, (tuple, list)):
            return type(x)([self.enter(each, op) for each in x])
        if isinstance(x, torch._C.Generator):
            self.generators.append(x)
        return x

    def _refuse(self, op: Any, one: str, other: str) -> None:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {one} and {other}! ({op})"
        )


class Lacking:
    """What a device does not have."""

    def __init__(self) -> None:
        self.dtypes: set[torch.dtype] = set()
        self.operations: set[str] = set()
        self.deterministic = False

    def refuse(self, op: Any) -> None:
        """Raise what torch raises where a device has no such operation."""
        name = op._schema.name
        if name in self.operations:
            raise NotImplementedError(f"The operator '{name}' is not currently implemented for the SIM device.")
        if self.deterministic and name in _NOT_DETERMINISTIC and torch.are_deterministic_algorithms_enabled():
            wrong = f"{name} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'."
            if not torch.is_deterministic_algorithms_warn_only_enabled():
                raise RuntimeError(wrong)

    def refuse_dtype(self, dtype: torch.dtype) -> None:
        """Raise what torch raises where a device has no such numbers."""
        if dtype in self.dtypes:
            raise TypeError(f"Cannot convert a SIM Tensor to {dtype} dtype as the SIM framework doesn't support it.")
