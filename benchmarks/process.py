"""One process of `benchmarks.processes`: it does each work that is named, and answers what that took."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gpt_cli.common.machine.cpu_contention import sharing
from gpt_cli.common.machine.devices import CPU, autocast, to_device, use_threads
from gpt_cli.common.machine.memory import reuse_memory
from gpt_cli.config.load import validate
from gpt_cli.config.schema import Config
from gpt_cli.distributed.collectives import ALONE, ProcessGroup, Ranks
from gpt_cli.distributed.environment import rank_environment
from gpt_cli.distributed.rendezvous import Rendezvous
from gpt_cli.model.dropout import DropMasks, drop_keys
from gpt_cli.tools.bench.baselines import endless_state
from gpt_cli.training.batches import Batches
from gpt_cli.training.data_parallel import Replicated
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import take_step
from gpt_cli.training.validation import cross_entropy

Works = dict[str, Callable[[], object]]


def main() -> None:
    """Read a config, then names of works until stdin ends; answer each with its seconds and processor seconds."""
    config = validate(json.loads(sys.stdin.readline()), "stdin")
    use_threads(config.train.threads)
    reuse_memory()
    with _joined(config) as ranks, sharing():
        works = _works(config, ranks)
        for line in sys.stdin:
            sys.stdout.write(json.dumps(_time(works[line.strip()], ranks)) + "\n")
            sys.stdout.flush()


@contextlib.contextmanager
def _joined(config: Config) -> Iterator[Ranks]:
    """This process among the others, as `gpt train` joins them."""
    if (rank_env := rank_environment(os.environ)) is None:
        yield ALONE
        return
    with Rendezvous(rank_env, None, lambda: ("nothing is trained", None)) as meeting:
        group = ProcessGroup(meeting)
        group.meet({"config": config.model_dump_json()}, CPU)
        yield group


def _works(config: Config, ranks: Ranks) -> Works:
    """Each work that can be asked for, once it is built."""
    state = endless_state(config, ranks)
    if ranks.size == 1:
        return {"gpt train": lambda: take_step(state)}
    numbers = torch.zeros(state.costs.parameters)
    parts = [torch.zeros(length) for length in _lengths(state.layout)]

    def exchange() -> None:
        ranks.all_gather(ranks.reduce_scatter(parts), [len(part) for part in parts])

    return {
        "gpt train": lambda: take_step(state),
        "DistributedDataParallel": _ddp_step(endless_state(config), ranks),
        "exchange": exchange,
        "all_reduce": lambda: dist.all_reduce(numbers),
    }


def _lengths(layout: Replicated) -> list[int]:
    return [sum(layout.parameters[name].numel() for name in names) for names in layout.names_of_owner]


def _ddp_step(state: TrainingState, ranks: Ranks) -> Callable[[], None]:
    """The same step with torch's own data parallelism: every process has all gradients and moments."""
    settings, micro = state.config.train, state.config.train.sequences_at_once
    micro_batches = Replicated(state.layout.parameters, ranks).micro_batches(settings.num_micro_batches)
    model, optimizer = DistributedDataParallel(state.model), state.optimizer
    batches, keys = state.batches, drop_keys(settings.seed, 0, state.config.model.num_blocks)
    assert isinstance(batches, Batches)

    def add_gradient(micro_batch: int) -> None:
        chosen = slice(micro_batch * micro, (micro_batch + 1) * micro)
        inputs, targets, *_ = batches.windows(to_device(torch.from_numpy(batches.numbers(0, chosen)), state.device))
        masks = DropMasks(keys, micro_batch * micro, state.config.model.dropout)
        with autocast(state.device, settings.dtype):
            loss = cross_entropy(model(inputs, masks), targets)
        # it averages over processes
        (loss * (micro * ranks.size / settings.batch_size)).backward()

    def step() -> None:
        with model.no_sync():
            for micro_batch in micro_batches[:-1]:
                add_gradient(micro_batch)
        add_gradient(micro_batches[-1])
        torch.nn.utils.clip_grad_norm_(state.model.parameters(), settings.gradient_clip or float("inf"))
        optimizer.step(1.0)
        optimizer.zero_grad()

    return step


def _time(work: Callable[[], object], ranks: Ranks) -> tuple[float, float]:
    """Seconds of a task, and of all cores in this process, once all are ready for it."""
    ranks.all_reduce_max(0)
    started, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - used


if __name__ == "__main__":
    main()
