"""The speed of training and sampling alone, and beside programs that keep cores busy; part of `make bench`."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from benchmarks.laboratory import CONSOLE, asked, finish, flags, machine, resolved, show
from gpt_cli.common.machine.cpu_contention import WATCH_EVERY, chosen_by_user, cores, read_usage, sharing
from gpt_cli.errors import counted
from gpt_cli.tools.bench.baselines import Variant, sampling_variants, training_variants

NUM_WAYS = 3  # alone, and with either way to wait beside the programs
MIN_SECONDS = 0.5  # shorter works are repeated, since programs take turns of some milliseconds


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
    """Time all works in turns in each way, after a round to warm up; `count` receives 1 for each."""
    ways = (0, sharing), (num_programs, contextlib.nullcontext), (num_programs, sharing)
    seconds: list[list[list[float]]] = [[[] for _ in works] for _ in ways]
    for number in range(rounds + 1):
        for (programs, waiting), of_way in zip(ways, seconds, strict=True):
            with busy_programs(programs), waiting():
                time.sleep(3 * WATCH_EVERY)  # as long as it takes to notice them
                for work, found in zip(works, of_way, strict=True):
                    took = _seconds(work.run)
                    if number:
                        found.append(took)
                    count(1)
    alone, spinning, sleeping = ([statistics.median(found) for found in of_way] for of_way in seconds)
    return [
        Beside(work.name, work.dtype, work.num_tokens / alone[i], alone[i] / spinning[i], alone[i] / sleeping[i])
        for i, work in enumerate(works)
    ]


def _seconds(run: Callable[[], object]) -> float:
    """The mean time of a task that is done again until MIN_SECONDS have passed."""
    started, number = time.perf_counter(), 0
    while not number or time.perf_counter() - started < MIN_SECONDS:
        run()
        number += 1
    return (time.perf_counter() - started) / number


@contextlib.contextmanager
def busy_programs(number: int) -> Iterator[None]:
    """So many programs that keep a core busy each, until the context or this process ends."""
    # in a group that Ctrl-C does not reach, but in this session: Linux divides cores among sessions first
    # the number comes from here: a parent that is gone before a program starts would be init to it, for ever
    code = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    nowhere = subprocess.DEVNULL
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            program = subprocess.Popen(
                [sys.executable, "-c", code], stdin=nowhere, stdout=nowhere, stderr=nowhere, process_group=0
            )
            stack.callback(program.wait)
            stack.callback(program.kill)
        yield


def main() -> None:
    parser = flags(__doc__, config="small")
    parser.add_argument("--programs", type=int, default=1, metavar="N", help="that keep a core busy each: 1")
    arguments = parser.parse_args()
    if (variable := chosen_by_user()) is not None:
        sys.exit(f"{variable} fixes how threads wait, and this compares two ways: env -u {variable} ...")
    if read_usage() is None:
        sys.exit("this system does not report what other programs use, as Linux does")
    config, device = resolved(asked(arguments))
    with CONSOLE.host().working("building models"):
        variants = training_variants(config, device)[-1:] + sampling_variants(config, device, arguments.tokens)
    works = [variant for variant in variants if variant.name in ("gpt train", "gpt sample")]
    with CONSOLE.counting("beside busy programs", NUM_WAYS * len(works) * (arguments.rounds + 1), "runs") as count:
        found = compare_beside(works, arguments.programs, arguments.rounds, count)
    left = share_left(cores(), torch.get_num_threads(), arguments.programs)
    print(machine(device, arguments.rounds))
    show(
        f"{arguments.config} beside {counted(arguments.programs, 'busy program')}: speed as a share of that alone, "
        f"where {left:.0%} of the cores is left",
        ("work", "dtype", "alone", "torch's threads spin", "gpt's sleep", "of what is left"),
        [
            (
                each.name,
                each.dtype,
                f"{each.tokens_per_second:,.1f} tokens/s",
                f"{each.spinning:.2f}",
                f"{each.sleeping:.2f}",
                f"{each.sleeping / left:.0%}",
            )
            for each in found
        ],
    )
    finish(arguments, programs=arguments.programs, share_left=left, work=found)


if __name__ == "__main__":
    main()
