"""Graphs of the simulated accelerator: what one records, it computes again on the same memory, without the host."""

import gc
import time
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from gpt_cli.training import cuda_graphs
from support.accelerator import Accelerator
from support.accelerator.tensors import SimTensor

_OF_THE_HOST = ("upload", "download", "synchronize")


class SimulatedGraph:
    """Work of a simulated device, as torch.accelerator.Graph has that of a real one.

    While it records, the host may neither read a number nor copy to the device or from it, as on CUDA. Nothing is
    computed then, as far as anybody can see: the memory of the device is as before, and results are NaN.
    """

    accelerator: Accelerator
    seconds = 0.0  # of all replays so far

    def __init__(self) -> None:
        self.num_replays = 0
        self._work: list[tuple[Any, list[Any], dict[str, Any], Any]] = []

    def __enter__(self) -> None:
        if not _Beside.depth:
            raise RuntimeError("graphs must be captured on a stream that is not the default one")
        copies = self.accelerator.copies
        self._ways = {name: getattr(copies, name) for name in _OF_THE_HOST}
        for name in _OF_THE_HOST:
            setattr(copies, name, _refuse)
        held = [each.held for each in gc.get_objects() if type(each) is SimTensor]
        self._known = {id(tensor): tensor for tensor in held}
        self._before = [(tensor, tensor.clone()) for tensor in held]
        self.accelerator.listeners.append(self._record)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.accelerator.listeners.remove(self._record)
        for name, way in self._ways.items():
            setattr(self.accelerator.copies, name, way)
        for work in self._work:
            for tensor in tree_leaves(work[3]):
                if isinstance(tensor, Tensor) and tensor.is_floating_point():
                    tensor.detach().fill_(torch.nan)
        for tensor, content in self._before:
            tensor.detach().copy_(content)
        del self._before, self._known
        if kind is not None:  # as CUDA ends a capture that it has refused something
            raise RuntimeError("operation failed due to a previous error during capture")

    def _record(self, op: Any, args: list[Any], kwargs: dict[str, Any], out: Any) -> None:
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, Tensor) and id(tensor) not in self._known:
                raise RuntimeError(f"{op} is given a tensor of the host when stream is capturing")
        self._known |= {id(tensor): tensor for tensor in tree_leaves(out) if isinstance(tensor, Tensor)}
        self._work.append((op, args, kwargs, out))

    def replay(self) -> None:
        """Compute everything again; results arrive where they were while it was recorded."""
        started = time.monotonic()
        self.num_replays += 1
        with torch.no_grad():
            for op, args, kwargs, out in self._work:
                again = op(*args, **kwargs)
                for old, new in zip(tree_leaves(out), tree_leaves(again), strict=True):
                    # a view, or what was changed in place, has the new numbers already
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)
        SimulatedGraph.seconds += time.monotonic() - started


class _Beside:
    """A stream of its own, while it is entered."""

    depth = 0

    def __init__(self, _: torch.device) -> None: ...

    def __enter__(self) -> None:
        _Beside.depth += 1

    def __exit__(self, *_: object) -> None:
        _Beside.depth -= 1


class _Event:
    """A place in the work of a simulated device, for which the host may wait; what was sent before it arrives then."""

    accelerator: Accelerator

    def __init__(self, _: torch.device) -> None: ...

    def record(self) -> None: ...

    def synchronize(self) -> None:
        self.accelerator.copies.arrive()


def _refuse(*_: object) -> None:
    raise RuntimeError("operation not permitted when stream is capturing")


def give_graphs(accelerator: Accelerator) -> list[SimulatedGraph]:
    """Let the simulated devices have graphs, until the test ends; returns those that are made from now on.

    For the trial of a training step, replays take no time: a busy machine would find some of them slower.
    """
    made: list[SimulatedGraph] = []

    def make() -> SimulatedGraph:
        made.append(SimulatedGraph())
        return made[-1]

    cuda_graphs.time = SimpleNamespace(perf_counter=lambda: time.perf_counter() - SimulatedGraph.seconds)  # type: ignore[assignment]
    SimulatedGraph.accelerator = accelerator
    torch.accelerator.Graph = make  # type: ignore[misc, assignment]
    torch.Stream = _Beside  # type: ignore[misc, assignment]
    _Event.accelerator = accelerator
    torch.Event = _Event  # type: ignore[misc, assignment]
    return made
