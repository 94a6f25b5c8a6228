"""Copies between the CPU and a simulated device, those that nobody waits for among them."""

import sys
import threading
from dataclasses import dataclass

import torch
from torch import Tensor

# from this size on, a copy from memory that is not pinned makes the host wait, as on CUDA
STAGED_BYTES = 2**16


class StaleCopy(AssertionError):  # noqa: N818 - it is what happened
    """The host changed memory that the device was still to read; real devices compute with wrong numbers then."""


@dataclass(frozen=True)
class Event:
    """A copy or a synchronisation: what it was, the place in the code that asked for it, and the bytes it copied."""

    what: str
    where: str
    num_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.what} at {self.where}"


class Copies:
    """What travels between the host and the devices, and when the host waits for it."""

    def __init__(self) -> None:
        self.syncs: list[Event] = []  # whenever the host waited
        self.to_device: list[Event] = []
        self.to_host: list[Event] = []
        self.pinned: set[int] = set()  # addresses
        self.can_pin = True
        # copies under way: host memory, and what the device read of it or is to write to it
        self._reads: list[tuple[Tensor, Tensor, Tensor, str]] = []
        self._writes: list[tuple[Tensor, Tensor]] = []

    def synchronize(self, what: str) -> None:
        """The host waits: copies under way arrive. Raises StaleCopy where their host memory changed meanwhile."""
        self.syncs.append(Event(what, where()))
        self.arrive()

    def arrive(self) -> None:
        """Let the copies under way arrive; raises StaleCopy."""
        reads, self._reads, writes, self._writes = self._reads, [], self._writes, []
        for host, content in writes:
            host.copy_(content)
        for host, then, device, place in reads:
            if not _same_bytes(host, then):
                device.copy_(host)  # what a device would have read
                raise StaleCopy(f"host memory changed before its copy was waited for: copied at {place}")

    def upload(self, host: Tensor, device: Tensor, non_blocking: bool) -> None:
        """Copy to the memory of a device."""
        device.copy_(host)
        size = _num_bytes(host)
        self.to_device.append(Event("copy to the device", where(), size))
        if not non_blocking:
            self.synchronize("copy to the device")
        elif not self.can_pin:  # mps reads it after it was released (pytorch/pytorch#189690)
            raise StaleCopy(f"nobody keeps this memory until the device has read it: copied at {where()}")
        elif size > STAGED_BYTES and not self.is_pinned(host):
            self.synchronize("copy to the device from memory that is not pinned")
        else:
            self._reads.append((host.detach(), host.detach().clone(), device, where()))

    def download(self, device: Tensor, host: Tensor, non_blocking: bool) -> None:
        """Copy to memory of the host, which has no meaning before the next synchronisation of a copy not waited for."""
        self.to_host.append(Event("copy to the host", where(), _num_bytes(host)))
        if not non_blocking:
            self.synchronize("copy to the host")
            host.copy_(device)
            return
        content = torch.empty_like(host).copy_(device)
        host.fill_(float("nan") if host.is_floating_point() else -(2**6) if host.dtype.is_signed else 1)
        self._writes.append((host, content))

    def pin(self, host: Tensor) -> Tensor:
        """A copy in memory that the device reads while the host goes on."""
        if not self.can_pin:
            raise RuntimeError("the simulated accelerator has no pinned memory")
        if self.is_pinned(host):
            return host
        pinned = host.detach().clone()
        # kept as long as the copies are, so that no other tensor gets its address
        self._kept = [*getattr(self, "_kept", []), pinned]
        self.pinned.add(pinned.untyped_storage().data_ptr())
        return pinned

    def is_pinned(self, host: Tensor) -> bool:
        return host.untyped_storage().data_ptr() in self.pinned


def where() -> str:
    """The line of code that asked: the nearest one that is neither torch's nor of the simulation."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if "/torch/" not in name and "support/accelerator" not in name and not name.startswith("<"):
            return f"{'/'.join(name.split('/')[-3:])}:{frame.f_lineno}"
        frame = frame.f_back
    return threading.current_thread().name


def _num_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _same_bytes(one: Tensor, other: Tensor) -> bool:
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (one, other)))
