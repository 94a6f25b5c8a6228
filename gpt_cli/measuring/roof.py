"""What this machine can do at best: its matrix products by type, and how fast it reads memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

_SIZE = 4096  # rows and columns of the matrices
_READ = 2**26  # float32 numbers, 256 MB: more than any cache


@dataclass(frozen=True)
class Roof:
    """Medians over rounds."""

    flops: dict[str, float]  # operations per second of a product of matrices, by dtype
    bytes_read: float  # per second


def synchronize(device: torch.device) -> None:
    """Wait until a device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_roof(device: torch.device, rounds: int, count: Callable[[int], object] = lambda _: None) -> Roof:
    """Time products of 4096-cubed matrices and the sum of 256 MB; `count` receives 1 for each of 3 x (rounds + 1)."""
    flops = {}
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        a, b = (torch.randn(_SIZE, _SIZE, device=device).to(dtype) for _ in range(2))
        flops[name] = 2 * _SIZE**3 / _median(lambda a=a, b=b: F.linear(a, b), device, rounds, count)
    numbers = torch.zeros(_READ, device=device)
    return Roof(flops, 4 * _READ / _median(numbers.sum, device, rounds, count))


@torch.inference_mode()
def _median(run: Callable[[], object], device: torch.device, rounds: int, count: Callable[[int], object]) -> float:
    seconds = []
    for number in range(rounds + 1):  # the first one warms up
        started = time.perf_counter()
        run()
        synchronize(device)
        if number:
            seconds.append(time.perf_counter() - started)
        count(1)
    return statistics.median(seconds)
