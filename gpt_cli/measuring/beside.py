"""The speed of the same work alone and beside programs that keep cores busy."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from gpt_cli.machine.sharing import WATCH_EVERY, sharing
from gpt_cli.measuring.bench import Variant

NUM_WAYS = 3  # alone, and with either way to wait beside the programs


@dataclass(frozen=True)
class Beside:
    """A kind of work: its rate alone, and its speed beside the programs as a share of that."""

    name: str
    dtype: str
    tokens_per_second: float
    spinning: float  # threads wait as torch lets them
    sleeping: float  # threads wait as gpt lets them


def share_left(num_cores: int, num_threads: int, num_programs: int) -> float:
    """The share of the cores used alone that is left beside busy programs: the idle ones, or by a fair division."""
    fair = num_cores * num_threads / (num_threads + num_programs)
    return min(1.0, max(num_cores - num_programs, fair) / min(num_threads, num_cores))


def compare_beside(
    works: Sequence[Variant], num_programs: int, rounds: int, count: Callable[[int], object]
) -> list[Beside]:
    """Time all works in turns in each way, after a round to warm up; `count` receives 1 for each run."""
    waiting = partial(sharing, torch.get_num_threads())
    ways = (0, waiting), (num_programs, contextlib.nullcontext), (num_programs, waiting)
    seconds: list[list[list[float]]] = [[[] for _ in works] for _ in ways]
    for number in range(rounds + 1):
        for way, (programs, context) in enumerate(
            ((0, sharing), (num_programs, contextlib.nullcontext), (num_programs, sharing))
        ):
            with busy_programs(programs), context():
                time.sleep(3 * WATCH_EVERY)  # as long as it takes to notice them
                for work, found in zip(works, seconds[way], strict=True):
                    started = time.perf_counter()
                    work.run()
                    if number:
                        found.append(time.perf_counter() - started)
                    count(1)
    alone, spinning, sleeping = ([statistics.median(found) for found in of_way] for of_way in seconds)
    return [
        Beside(work.name, work.dtype, work.num_tokens / alone[i], alone[i] / spinning[i], alone[i] / sleeping[i])
        for i, work in enumerate(works)
    ]


@contextlib.contextmanager
def busy_programs(number: int) -> Iterator[None]:
    """So many programs that keep a core busy each, until the context ends."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
        for program in programs:
            program.wait()
