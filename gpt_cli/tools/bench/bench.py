"""`gpt bench`: time variants of training and sampling in turns, so that a slowdown of the machine affects all alike.

The roof (as in the roofline model) is the best rate that the benchmark measures, in matrix products, in reads of memory
or in the variants themselves. So no variant exceeds 100 % of the roof.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F

from gpt_cli.common.host import Host
from gpt_cli.common.machine.devices import (
    choose_device,
    processor,
    product_dtype,
    restored_threads,
    supports,
    synchronize,
    use_threads,
)
from gpt_cli.common.machine.memory import reuse_memory
from gpt_cli.common.results import Result
from gpt_cli.common.tables import Rows
from gpt_cli.common.units import percentage
from gpt_cli.config import Config
from gpt_cli.errors import counted
from gpt_cli.sampling.fast.c_library import Weight, library
from gpt_cli.tools.bench.baselines import (
    READING,
    Variant,
    require_batch,
    sampling_variants,
    training_variants,
    vocab_size_of,
)
from gpt_cli.tools.bench.request import BenchRequest

Average = Callable[[list[float]], float]
_SIZE = 4096  # rows and columns of the large matrices
_READ = 2**13  # rows and columns of float32 numbers to read, 256 MB: more than any cache


@dataclass(frozen=True)
class Roof:
    """The best rates that a benchmark has measured on this machine: operations and bytes read per second."""

    flops: dict[str, float]  # operations per second of a product of matrices, by dtype
    bytes_read: float  # per second


@dataclass(frozen=True)
class Timing:
    """Speed of an implementation; `seconds` is the median time of a call.

    `ratio` compares tokens/s with the first implementation's, `share_of_roof` (0 to 1) with this machine's best rate.
    """

    form: str
    dtype: str
    seconds: float
    tokens_per_second: float
    ratio: float
    share_of_roof: float


@dataclass(frozen=True)
class Bench(Result):
    """Speed of training and sampling on this machine, compared with plain implementations and the machine's limits."""

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
        """Return the limits of the machine, a table for training, and a table for sampling."""
        machine = f"{self.processor}, {self.device}, {counted(self.threads, 'thread')}, torch {self.torch}"
        rates = ", ".join(f"{dtype} {flops / 1e9:,.0f} GFLOP/s" for dtype, flops in self.roof.flops.items())
        return [
            f"{machine}, {counted(self.rounds, 'round')}",
            f"roof: {rates}, reading {self.roof.bytes_read / 1e9:,.1f} GB/s",
            "",
            f"training {self.config}, {self.tokens_per_step:,} tokens a step; the roof is products",
            _timings(self.training),
            "",
            f"sampling {self.config}, {self.tokens} tokens after 8; the roof is reading the weights",
            _timings(self.sampling),
        ]


def _timings(timings: Sequence[Timing]) -> Rows:
    rows = [("implementation", "dtype", "seconds", "tokens/s", "ratio", "of roof")]
    for timing in timings:
        figures = f"{timing.seconds:.3f}", f"{timing.tokens_per_second:,.1f}", f"{timing.ratio:.2f}"
        rows.append((timing.form, timing.dtype, *figures, percentage(timing.share_of_roof)))
    return rows


@restored_threads()
def bench(request: BenchRequest, config: Config, host: Host) -> Bench:
    """Time training and sampling; raise EnvironmentFailure if memory is too small for the benchmark."""
    use_threads(config.train.threads)
    reuse_memory()
    device, rounds = choose_device(config.train.device), request.rounds
    if device.type == "cpu":  # a GPU raises its own error
        require_batch(config, request.tokens)
    # the baselines draw weights and dropout from torch's global generator
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        # the fastest run is the limit
        _, limits = take_turns("the roof", roof_variants(config, device), {}, rounds, host, of=min)
        with host.working("building models to train"):
            variants = training_variants(config, device)
        training, limits = take_turns("training", variants, limits, rounds, host)
        del variants  # frees memory for the next variants
        with host.working("building models to sample from"):
            variants = sampling_variants(config, device, request.tokens)
        sampling, limits = take_turns("sampling", variants, limits, rounds, host)
    return Bench(
        config=request.config,
        device=str(device),
        processor=processor(),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        rounds=rounds,
        tokens_per_step=config.tokens_per_step,
        tokens=request.tokens,
        roof=Roof({name: rate for name, rate in limits.items() if name != READING}, limits[READING]),
        training=training,
        sampling=sampling,
    )


def roof_variants(config: Config, device: torch.device) -> list[Variant]:
    """Make the tasks that measure this machine's best rates: matrix products in each dtype, and reads of 256 MB."""

    def variant(name: str, limit: str, cost: float, run: Callable[..., object], *inputs: torch.Tensor) -> Variant:
        @torch.inference_mode()
        def timed() -> None:
            run(*inputs)
            synchronize(device)

        return Variant(name, limit, timed, 1, cost, limit)

    rows, D = config.train.sequences_at_once * config.model.context_length, config.model.d_model
    hidden = config.model.hidden_size
    shapes = [(_SIZE, _SIZE, _SIZE), (rows, D, hidden), (rows, hidden, D), (rows, D, vocab_size_of(config))]
    variants = list[Variant]()
    for dtype in ("float32", *(["bfloat16"] if supports(device, "bfloat16") else [])):
        draw = partial(torch.randn, device=device, dtype=product_dtype(dtype))
        for n, d_in, d_out in shapes:
            name = f"{n} x {d_in} x {d_out}"
            variants.append(variant(name, dtype, 2 * n * d_in * d_out, F.linear, draw(n, d_in), draw(d_out, d_in)))
    numbers, row = torch.zeros(_READ, _READ, device=device), torch.zeros(1, _READ, device=device)
    variants += [variant("sum", READING, numbers.nbytes, torch.sum, numbers)]
    variants += [variant("product with a vector", READING, numbers.nbytes, F.linear, row, numbers)]
    if device.type == "cpu" and library():
        variants += [variant("compiled product", READING, numbers.nbytes, Weight(numbers, None), row)]
    return variants


def time_in_turns(
    runs: Sequence[Callable[[], object]], rounds: int, count: Callable[[int], object], of: Average = statistics.median
) -> list[float]:
    """Call the functions `runs` in turns, once untimed and `rounds` times timed, and count(1) after each call.

    Returns seconds for each function: `of`, by default the median, reduces its measured times to one.
    """
    seconds: list[list[float]] = [[] for _ in runs]
    for number in range(rounds + 1):
        for run, times in zip(runs, seconds, strict=True):
            started = time.perf_counter()
            run()
            if number:
                times.append(time.perf_counter() - started)
            count(1)
    return [of(times) for times in seconds]


def take_turns(
    what: str,
    variants: Sequence[Variant],
    limits: Mapping[str, float],
    rounds: int,
    host: Host,
    of: Average = statistics.median,
) -> tuple[list[Timing], dict[str, float]]:
    """Time implementations in turns; compare the rate of each with that of the first and with `limits`.

    `limits` maps a dtype to the best operations per second so far, and READING to the best bytes per second. `of`
    reduces the times of a variant to one time. Returns the timings, and `limits` raised to any faster rates. `host`
    shows the progress of the task `what`.
    """
    num_runs = len(variants) * (rounds + 1)
    host.notice(f"measuring {what}: {num_runs:,} runs")
    with host.started(what, num_runs, "runs") as count:
        seconds = time_in_turns([variant.run for variant in variants], rounds, count, of)
    rates = [variant.num_tokens / taken for variant, taken in zip(variants, seconds, strict=True)]
    raised = dict(limits)
    for variant, rate in zip(variants, rates, strict=True):
        raised[variant.limit] = max(raised.get(variant.limit, 0.0), rate * variant.cost)
    return [
        Timing(variant.name, variant.dtype, taken, rate, rate / rates[0], rate * variant.cost / raised[variant.limit])
        for variant, taken, rate in zip(variants, seconds, rates, strict=True)
    ], raised
