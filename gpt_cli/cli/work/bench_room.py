"""Refuses a `gpt bench` that memory cannot hold, before it builds a model, and names one that it can."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from gpt_cli.cli.work.room import require_room
from gpt_cli.config import Config
from gpt_cli.errors import counted
from gpt_cli.machine.memory import available_memory
from gpt_cli.measuring.needs import together_bytes


def require_batch(asked: Config, where: torch.device, needed: Callable[[Config], int]) -> None:
    """Refuse a batch for which main memory is too small, and name one that it can hold."""
    if where.type != "cpu":  # a GPU refuses by itself
        return
    free, settings = available_memory(), asked.train
    smaller = (n for n in (2**k for k in range(16, -1, -1)) if n < settings.batch_size)
    if settings.micro_batch_size is not None:
        smaller = (n for n in smaller if n % settings.sequences_at_once == 0)
    fitting = (n for n in smaller if needed(asked.changed(train={"batch_size": n})) <= (free or 0))
    hints = (f"--set train.batch_size={n}" for n in fitting)
    _require_memory(asked, settings.batch_size, needed(asked), free, hints)


def require_processes(asked: Config, num_processes: int) -> None:
    """Refuse processes for which main memory is too small; name smaller micro-batches for them, or for fewer."""
    free, micro = available_memory(), asked.train.sequences_at_once

    def fitting() -> Iterator[str]:
        sizes = [n for n in range(micro, 0, -1) if micro % n == 0]
        for number in (2**k for k in range(num_processes.bit_length() - 1, 0, -1)):
            for at_once in sizes:
                if together_bytes(asked.changed(train={"micro_batch_size": at_once}), number) <= (free or 0):
                    fewer = "" if number == num_processes else f"--processes {number} "
                    yield f"{fewer}--set train.micro_batch_size={at_once}"

    _require_memory(asked, num_processes * micro, together_bytes(asked, num_processes), free, fitting())


def _require_memory(asked: Config, num_sequences: int, num_bytes: int, free: int | None, hints: Iterator[str]) -> None:
    about = f"{counted(num_sequences, 'sequence')} of {counted(asked.model.context_length, 'token')}"
    hint = "" if free is None or num_bytes <= free else next(hints, "choose a smaller model")
    require_room("bench", about, num_bytes, free, what="memory", hint=hint)
