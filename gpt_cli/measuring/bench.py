"""`gpt bench`: variants of training and sampling take turns, so that a machine that slows down slows all."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from gpt_cli.callbacks import Counting, Host
from gpt_cli.config import Config
from gpt_cli.errors import counted
from gpt_cli.machine.devices import (
    choose_device,
    processor,
    product_dtype,
    supports,
    synchronize,
    threads_kept,
    use_threads,
)
from gpt_cli.machine.memory import reuse_memory
from gpt_cli.measuring.request import BenchRequest
from gpt_cli.measuring.variants import Variant, require_batch, sampling_variants, training_variants
from gpt_cli.results import Result
from gpt_cli.tables import Rows

_SIZE = 4096  # rows and columns of the matrices
_READ = 2**26  # float32 numbers, 256 MB: more than any cache


@dataclass(frozen=True)
class Roof:
    """Medians over rounds."""

    flops: dict[str, float]  # operations per second of a product of matrices, by dtype
    bytes_read: float  # per second


@dataclass(frozen=True)
class Timing:
    """The time of a variant: medians over rounds, its rate against the first one's and against the machine's."""

    form: str
    dtype: str
    seconds: float
    tokens_per_second: float
    ratio: float
    share_of_roof: float


@dataclass(frozen=True)
class Bench(Result):
    """How fast this machine trains and samples, beside plain implementations and what it can do at most."""

    config: str
    device: str
    processor: str
    threads: int
    torch: str
    rounds: int
    tokens_per_step: int
    tokens: int
    roof: Roof
    training: list[Timing]
    sampling: list[Timing]

    def parts(self) -> list[Rows | str]:
        """The limits of the machine, and a table each for training and sampling."""
        machine = f"{self.processor}, {self.device}, {counted(self.threads, 'thread')}, torch {self.torch}"
        rates = ", ".join(f"{dtype} {flops / 1e9:,.0f} GFLOP/s" for dtype, flops in self.roof.flops.items())
        tokens = f"{self.tokens_per_step:,} tokens a step"
        return [
            f"{machine}, {counted(self.rounds, 'round')}",
            f"roof: {rates}, reading {self.roof.bytes_read / 1e9:,.1f} GB/s",
            "",
            f"training {self.config}, {tokens}; the roof is products",
            _timings(self.training),
            "",
            f"sampling {self.config}, {self.tokens} tokens after 8; the roof is reading the weights",
            _timings(self.sampling),
        ]


def _timings(timings: Sequence[Timing]) -> Rows:
    rows = [("implementation", "dtype", "seconds", "tokens/s", "ratio", "of roof")]
    for found in timings:
        figures = f"{found.seconds:.3f}", f"{found.tokens_per_second:,.1f}", f"{found.ratio:.2f}"
        rows.append((found.form, found.dtype, *figures, f"{found.share_of_roof:.0%}"))
    return rows


@threads_kept()
def bench(request: BenchRequest, config: Config, host: Host) -> Bench:
    """Time training and sampling; raises EnvironmentFailure where memory is too small for them."""
    use_threads(config.train.threads)
    reuse_memory()
    device, rounds, counting = choose_device(config.train.device), request.rounds, _announcing(host)
    if device.type == "cpu":  # a GPU refuses by itself
        require_batch(config, request.tokens)
    # the forms that are compared with ours draw weights and dropout as torch does
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        with counting("the roof", 3 * (rounds + 1), "rounds") as count:
            roof = measure_roof(device, rounds, count)
        with host.working("building models to train"):
            variants = training_variants(config, device)
        with counting("training", len(variants) * (rounds + 1), "runs") as count:
            training = take_turns(variants, lambda form: roof.flops[form.dtype], rounds, count)
        del variants  # their memory is for the next ones
        with host.working("building models to sample from"):
            variants = sampling_variants(config, device, request.tokens)
        with counting("sampling", len(variants) * (rounds + 1), "runs") as count:
            sampling = take_turns(variants, lambda _: roof.bytes_read, rounds, count)
    return Bench(
        config=request.config,
        device=str(device),
        processor=processor(),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        rounds=rounds,
        tokens_per_step=config.tokens_per_step,
        tokens=request.tokens,
        roof=roof,
        training=training,
        sampling=sampling,
    )


def _announcing(host: Host) -> Counting:
    """A bar that begins at once; its beginning is a notice too, for those who see no bar."""

    @contextlib.contextmanager
    def counting(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], object]]:
        host.notice(f"measuring {what}" + ("" if total is None else f": {total:,} {unit}"))
        with host.counting(what, total, unit) as count:
            count(0)
            yield count

    return counting


@torch.inference_mode()
def measure_roof(device: torch.device, rounds: int, count: Callable[[int], object] = lambda _: None) -> Roof:
    """Time products of 4096-cubed matrices and the sum of 256 MB; `count` receives 1 for each of 3 x (rounds + 1)."""

    def median(run: Callable[[], object]) -> float:
        return time_in_turns([lambda: (run(), synchronize(device))], rounds, count)[0]

    flops = {}
    for name in ("float32", *(["bfloat16"] if supports(device, "bfloat16") else [])):
        a, b = (torch.randn(_SIZE, _SIZE, device=device).to(product_dtype(name)) for _ in range(2))
        flops[name] = 2 * _SIZE**3 / median(lambda a=a, b=b: F.linear(a, b))
    numbers = torch.zeros(_READ, device=device)
    return Roof(flops, 4 * _READ / median(numbers.sum))


def time_in_turns(runs: Sequence[Callable[[], object]], rounds: int, count: Callable[[int], object]) -> list[float]:
    """Each once to warm up, then `rounds` times: medians in seconds; `count` receives 1 for each run."""
    seconds: list[list[float]] = [[] for _ in runs]
    for number in range(rounds + 1):
        for run, found in zip(runs, seconds, strict=True):
            started = time.perf_counter()
            run()
            if number:
                found.append(time.perf_counter() - started)
            count(1)
    return [statistics.median(found) for found in seconds]


def take_turns(
    variants: Sequence[Variant], roof: Callable[[Variant], float], rounds: int, count: Callable[[int], object]
) -> list[Timing]:
    """Time variants in turns, beside the first of them and the machine's roof; `count` receives 1 for each run."""
    medians = time_in_turns([variant.run for variant in variants], rounds, count)
    rates = [variant.num_tokens / median for variant, median in zip(variants, medians, strict=True)]
    return [
        Timing(variant.name, variant.dtype, median, rate, rate / rates[0], rate * variant.cost / roof(variant))
        for variant, median, rate in zip(variants, medians, rates, strict=True)
    ]
