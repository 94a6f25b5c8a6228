"""The speed of many processes that train together, beside one with the same cores and beside torch's own means.

Part of `make bench`.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.laboratory import CONSOLE, asked, finish, flags, machine, resolved, show
from gpt_cli.common.machine.cpu_contention import cores
from gpt_cli.common.units import size
from gpt_cli.config import Config
from gpt_cli.distributed.environment import process_name
from gpt_cli.distributed.launch import process_environment, python_command, require_fitting
from gpt_cli.errors import EnvironmentFailure, GptError, counted
from gpt_cli.tools.bench.baselines import vocab_size_of
from gpt_cli.training.state import training_costs

COMMAND = ("-m", "benchmarks.process")
# what is timed in turns: the work, and whether one process does it or all do together
WORKS = (
    ("gpt train", False),
    ("gpt train", True),
    ("DistributedDataParallel", True),
    ("exchange", True),
    ("all_reduce", True),
)


@dataclass(frozen=True)
class Together:
    """A work of some processes: medians over rounds; the seconds of all their cores are added."""

    work: str
    num_processes: int
    threads: int  # of each process
    seconds: float
    processor_seconds: float


def threads_each(config: Config, num_processes: int) -> int:
    """Threads of each of the processes: those of the config, or a fair part of the cores."""
    return config.train.threads or max(1, cores() // num_processes)


def compare_together(config: Config, num_processes: int, rounds: int, count: Callable[[int], object]) -> list[Together]:
    """Time all works in turns, after a round to warm up; `count` receives 1 for each.

    The config is resolved. Raises EnvironmentFailure where a process ends.
    """
    threads = threads_each(config, num_processes)
    shapes = {False: (1, num_processes * threads), True: (num_processes, threads)}
    found: list[list[tuple[float, float]]] = [[] for _ in WORKS]
    with contextlib.ExitStack() as stack:
        teams = {
            together: stack.enter_context(_team(config.changed(train={"threads": each}), number))
            for together, (number, each) in shapes.items()
        }
        for turn in range(rounds + 1):
            for (work, together), timings in zip(WORKS, found, strict=True):
                took = teams[together].run(work)
                if turn:
                    timings.append(took)
                count(1)
    return [
        Together(work, *shapes[together], *(statistics.median(kind) for kind in zip(*timings, strict=True)))
        for (work, together), timings in zip(WORKS, found, strict=True)
    ]


class _Team:
    """Processes that wait for work."""

    def __init__(self, processes: list[subprocess.Popen[str]]):
        self.processes = processes

    def tell(self, line: str) -> None:
        for process in self.processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # its missing answer will tell
                process.stdin.write(f"{line}\n")
                process.stdin.flush()

    def run(self, work: str) -> tuple[float, float]:
        """Let all do a task: seconds of the slowest, and of all cores."""
        self.tell(work)
        answers = []
        for rank, process in enumerate(self.processes):
            assert process.stdout is not None
            if not (line := process.stdout.readline()):
                where = process_name(rank, len(self.processes))
                raise EnvironmentFailure(where, f"it ended with {process.wait()} while it was to do: {work}")
            answers.append(json.loads(line))
        seconds, processor_seconds = zip(*answers, strict=True)
        return max(seconds), sum(processor_seconds)


@contextlib.contextmanager
def _team(config: Config, size: int) -> Iterator[_Team]:
    """So many processes with this config, joined on this machine alone; they end with the context or this process."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gpt-", ignore_cleanup_errors=True))
        shared = process_environment(size, folder, config) if size > 1 else {**os.environ, "WORLD_SIZE": "1"}
        team = _Team([_start({**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stack) for rank in range(size)])
        team.tell(config.model_dump_json())
        yield team


def _start(variables: Mapping[str, str], stack: contextlib.ExitStack) -> subprocess.Popen[str]:
    """A process in a group that Ctrl-C does not reach, since this one ends it."""
    process = subprocess.Popen(
        [*python_command(), *COMMAND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=variables,
        process_group=0,
    )
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(BrokenPipeError), process:  # which waits, and closes the pipes
        process.kill()


def main() -> None:
    parser = flags(__doc__, config="small")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="that train together: 2")
    arguments = parser.parse_args()
    number, config = arguments.processes, asked(arguments).changed(train={"device": "cpu"})
    if config.train.micro_batch_size is None and config.train.batch_size % number == 0:
        config = config.changed(train={"micro_batch_size": config.train.batch_size // number})
    try:
        require_fitting(number, config)
    except GptError as error:
        sys.exit("\n".join(error.lines()))
    config, device = resolved(config)
    settings = config.train
    with CONSOLE.counting(f"{number} processes", len(WORKS) * (arguments.rounds + 1), "runs") as count:
        found = compare_together(config, number, arguments.rounds, count)
    parameters = training_costs(config, vocab_size_of(config)).parameters
    print(machine(device, arguments.rounds, number * threads_each(config, number)))
    show(
        f"a step of {arguments.config} in {settings.dtype}, {settings.num_micro_batches} micro-batches of "
        f"{counted(settings.sequences_at_once, 'sequence')}; each process exchanges gradients and weights of "
        f"{size(4 * parameters)}",
        ("work", "processes", "threads each", "seconds", "of all cores", "speed"),
        [_row(each, found[0]) for each in found],
    )
    finish(arguments, processes=number, bytes_of_gradients=4 * parameters, work=found)


def _row(each: Together, alone: Together) -> tuple[str, ...]:
    is_step = each.work not in ("exchange", "all_reduce")
    took = f"{each.seconds:.3f}", f"{each.processor_seconds:.3f}"
    speed = f"{alone.seconds / each.seconds:.2f}" if is_step else "-"
    return each.work, str(each.num_processes), str(each.threads), *took, speed


if __name__ == "__main__":
    main()
