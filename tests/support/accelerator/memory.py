"""The memory of a simulated device: bytes of live tensors, and a size that they must not exceed."""

from __future__ import annotations

import torch


class Pool:
    """The memory of one device."""

    def __init__(self) -> None:
        self.size = 2**40  # bytes
        self.allocated = 0
        self.peak = 0

    def take(self, num_bytes: int) -> Block:
        """Memory for one tensor and its views; raises torch.OutOfMemoryError where the device is full."""
        if self.allocated + num_bytes > self.size:
            free = self.size - self.allocated
            raise torch.OutOfMemoryError(
                f"sim out of memory. Tried to allocate {num_bytes} bytes, of {self.size} bytes {free} are free."
            )
        self.allocated += num_bytes
        self.peak = max(self.peak, self.allocated)
        return Block(self, num_bytes)


class Block:
    """Memory of a tensor and its views; it is free again when none of them lives."""

    __slots__ = ("num_bytes", "pool")

    def __init__(self, pool: Pool, num_bytes: int) -> None:
        self.pool, self.num_bytes = pool, num_bytes

    def __del__(self) -> None:
        self.pool.allocated -= self.num_bytes
