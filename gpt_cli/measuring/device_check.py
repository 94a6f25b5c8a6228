"""`gpt bench --check-device`: the same small trainings and commands on the CPU and on a device, and how far they part."""

from __future__ import annotations

import platform
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch

from gpt_cli.amounts import size
from gpt_cli.callbacks import Host
from gpt_cli.errors import EnvironmentFailure, GptError, counted
from gpt_cli.machine.devices import (
    Ability,
    choose_compile,
    choose_device,
    free_memory,
    name_of,
    processor,
    supports,
    use_threads,
)
from gpt_cli.machine.memory import available_memory, reuse_memory
from gpt_cli.measuring.both_sides import (
    Figures,
    Side,
    Skipped,
    closing_loss,
    estimated,
    explained,
    losses,
    weights,
)
from gpt_cli.measuring.request import BenchRequest
from gpt_cli.results import WIDTH, Result
from gpt_cli.tables import cut
from gpt_cli.version import __version__

_COLUMNS = 80  # of an issue
_ROUNDING = "a rounding: 2^-24 of the largest number of an array, in bfloat16 2^-9"
Verdict = Literal["equal", "within", "differs", "refused", "skipped"]


@dataclass(frozen=True)
class Bound:
    """How far numbers may be apart: in roundings of the largest of an array with so many bits, or as they are."""

    most: float
    unit: str
    reason: str  # what was measured on CPUs: `make bench` does not repeat it, NOTES.md has the command
    bits: int | None = None

    def difference(self, expected: Figures, found: Figures) -> float:
        """How far the numbers that differ most are apart; NaN where one is not a number."""
        assert expected.keys() == found.keys()
        return max(self._of_one(expected[name].astype(float), found[name].astype(float)) for name in expected)

    def _of_one(self, expected: np.ndarray, found: np.ndarray) -> float:
        if expected.shape != found.shape:
            return np.inf
        if np.array_equal(expected, found, equal_nan=True):
            return 0.0
        apart = np.abs(expected - found).max()
        return float(apart if self.bits is None else apart / max(np.abs(expected).max(), 1e-30) * 2**self.bits)


@dataclass(frozen=True)
class Checked:
    """What a check found; `difference` is in the unit of its bound, None where there is none that is finite."""

    group: str
    name: str
    verdict: Verdict
    difference: float | None
    unit: str
    bound: float
    reason: str  # of the bound
    message: str = ""  # why it was refused or skipped


@dataclass(frozen=True)
class DeviceCheck(Result):
    """How far a device parts from the CPU of the same machine, in what gpt computes."""

    gpt: str
    torch: str
    python: str
    system: str
    device: str
    name: str
    memory: int | None  # free bytes, where they are known
    supports: dict[str, bool]
    processor: str
    threads: int
    checks: list[Checked]

    def as_text(self, width: int = WIDTH) -> str:
        """The machine, a table for each bound, and how many checks have which verdict; always of 80 columns."""
        memory = "" if self.memory is None else f", {size(self.memory)} of memory free"
        able = (f"{what} {'yes' if has else 'no'}" for what, has in self.supports.items())
        lines = [
            f"gpt {self.gpt}, torch {self.torch}, Python {self.python}, {self.system}",
            f"{self.device}: {self.name}{memory}",
            f"{self.device}: {', '.join(able)}",
            f"beside the CPU: {self.processor}, {counted(self.threads, 'thread')}",
        ]
        for group, rows in groupby(self.checks, key=lambda row: row.group):
            lines += ["", *_lines(group, list(rows))]
        return "\n".join(cut(line, _COLUMNS) for line in [*lines, "", _ROUNDING, f"{self.device}: {self.summary()}"])

    def summary(self) -> str:
        """How many checks have which verdict."""
        verdicts = Counter(row.verdict for row in self.checks)
        found = (f"{verdicts[one]} {one}" for one in get_args(Verdict) if verdicts[one])
        return f"{counted(len(self.checks), 'check')}: {', '.join(found)}"

    def failure(self) -> GptError | None:
        """Numbers other than the CPU's, or none at all: the machine does not give what it should."""
        verdicts = Counter(row.verdict for row in self.checks)
        if verdicts["differs"]:
            wrong = f"{self.device} gives other numbers than the CPU in {counted(verdicts['differs'], 'check')}"
        elif not verdicts["equal"] + verdicts["within"]:
            wrong = f"{self.device} gives no numbers that could be compared with the CPU's"
        else:
            return None
        return EnvironmentFailure("--check-device", wrong, hint="paste the lines of this check into an issue")


def _lines(group: str, rows: Sequence[Checked]) -> Iterator[str]:
    first = rows[0]
    yield f"{group}: at most {first.bound:,g} {first.unit}" if first.bound else f"{group}: equal bits"
    yield f"({first.reason})"
    for row in rows:
        apart = "" if row.verdict in ("refused", "skipped") else "-" if row.difference is None else _few(row.difference)
        yield f"  {row.name:<56} {apart:>9}  {row.verdict}"
        if row.message:
            yield f"    {row.message}"


def _few(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


GRADIENT = Bound(256, "roundings", "other orders of sums, and float64: up to 24 on CPUs", bits=24)
GRADIENT_16 = Bound(64, "roundings", "other orders of sums, and float32: up to 8 on CPUs", bits=9)
LOSSES = Bound(1e-5, "nats", "other orders of sums: up to 1e-6 on CPUs")
LOSSES_16 = Bound(1e-2, "nats", "other orders of sums: up to 9e-4 on CPUs")
NUMBERS = Bound(256, "roundings", "as the gradient", bits=24)
WEIGHTS = Bound(40_000, "roundings", "after 12 steps, other orders of sums: up to 4,000 on CPUs", bits=24)
BITS = Bound(0, "", "nothing is computed, only copied")
MEMORY = Bound(1, "of the estimate", "an estimate is right within a factor of two")


@dataclass(frozen=True)
class Check:
    """Two ways to the same numbers."""

    name: str
    expected: Callable[[], Figures]
    found: Callable[[], Figures]


def checks(cpu: Side, other: Side) -> Iterator[tuple[str, Bound, list[Check]]]:
    """All that is checked, in groups of one bound; each `Side` is one that gpt computes on."""

    def both(name: str, compute: Callable[[Side], Figures]) -> Check:
        return Check(name, lambda: compute(cpu), lambda: compute(other))

    def gradient(name: str, *settings: str) -> Check:
        return both(name, lambda side: side.gradient(settings))

    def training(name: str, *settings: str) -> Check:
        return both(name, lambda side: losses(side.trained(settings)))

    grouped = "model.attention=grouped_query", "model.positions=rope"
    latent = "model.attention=latent", "model.positions=rope"
    rarer = "model.ngram_embedding=3", "model.norm=rmsnorm", "model.norm_position=post", "model.activation=relu2"
    muon, micro, half = "train.optimizer=muon", "train.micro_batch_size=2", "train.dtype=bfloat16"
    yield (
        "gradient of a first step in float32",
        GRADIENT,
        [
            gradient("multi-head, dropout"),
            gradient("multi-head, no dropout", "model.dropout=0"),
            gradient("multi-head, dropout, micro-batches", micro),
            gradient("grouped-query, rope", *grouped),
            gradient("latent, rope", *latent),
            gradient("n-grams, RMSNorm after the sum, ReLU squared", *rarer),
        ],
    )
    yield (
        "gradient of a first step in bfloat16",
        GRADIENT_16,
        [
            gradient("multi-head, dropout", half),
            gradient("latent, rope", *latent, half),
        ],
    )
    yield (
        "losses of a training in float32",
        LOSSES,
        [
            training("multi-head, AdamW"),
            training("multi-head, Muon", muon),
            training("grouped-query, AdamW, micro-batches", *grouped, micro),
            training("latent, Muon, micro-batches", *latent, muon, micro),
            Check(
                "begun on the device, ended on the CPU",
                lambda: losses(cpu.trained()),
                lambda: losses(cpu.continued(other.half_trained())),
            ),
            Check(
                "begun on the CPU, ended on the device",
                lambda: losses(cpu.trained()),
                lambda: losses(other.continued(cpu.half_trained())),
            ),
        ],
    )
    yield (
        "losses of a training in bfloat16",
        LOSSES_16,
        [
            training("multi-head, AdamW", half),
            training("latent, Muon", *latent, muon, half),
        ],
    )
    yield (
        "weights and moments after a training on the device",
        WEIGHTS,
        [
            Check(
                "the same seed twice", lambda: weights(other.trained()), lambda: weights(other.trained(name="again"))
            ),
            Check(
                "left after half the steps, resumed",
                lambda: weights(other.trained()),
                lambda: weights(other.continued(other.half_trained())),
            ),
        ],
    )
    yield (
        "files of a training on the device",
        BITS,
        [
            Check(
                "exported for transformers, imported again",
                lambda: weights(other.trained()),
                lambda: other.reopened(other.trained()),
            ),
        ],
    )
    yield (
        "one model on a text, in nats",
        LOSSES,
        [
            Check(
                "loss while training, of its file by gpt eval on the CPU",
                lambda: closing_loss(other.trained()),
                lambda: cpu.evaluated(other.trained()),
            ),
            both("gpt eval", lambda side: side.evaluated(cpu.trained())),
            both(
                "gpt sample --greedy: tokens, log-probabilities", lambda side: side.sampled(cpu.trained(), greedy=True)
            ),
            both("gpt sample, 4 at once: the same", lambda side: side.sampled(cpu.trained(), seed=7, num_samples=4)),
            both("gpt heads --ablate zero", lambda side: side.scored(cpu.trained(), ablate="zero", dtype="float32")),
        ],
    )
    yield (
        "one model on a text in bfloat16, in nats",
        LOSSES_16,
        [
            both("gpt eval", lambda side: side.evaluated(cpu.trained(), "bfloat16")),
        ],
    )
    yield (
        "one model on a prompt",
        NUMBERS,
        [
            both("gpt attn-dump: all stages", lambda side: side.attended(cpu.trained())),
            both("gpt heads: scores", lambda side: side.scored(cpu.trained())),
            Check(
                "gpt explain in float64, attention on the device",
                lambda: explained(cpu.trained()),
                lambda: other.first_head(cpu.trained()),
            ),
        ],
    )
    yield (
        "memory",
        MEMORY,
        [
            Check("estimate of gpt, peak of a training", lambda: estimated(other), other.peak),
        ],
    )


def check_device(request: BenchRequest, host: Host) -> DeviceCheck:
    """Compute everything of `checks` on the CPU and on a device; raises EnvironmentFailure for one that is not there."""
    use_threads(request.threads)
    device, rows = choose_device(request.check_device or "auto"), list[Checked]()
    reuse_memory()
    with tempfile.TemporaryDirectory(prefix="gpt-check-") as folder:
        found = list(checks(Side("cpu", Path(folder)), Side(str(device), Path(folder))))
        with host.counting(f"checking {device}", sum(len(each) for _, _, each in found), "checks") as count:
            count(0)
            for group, bound, each in found:
                for check in each:
                    rows.append(_checked(group, bound, check))
                    count(1)
    able = {what: supports(device, what) for what in get_args(Ability)}
    return DeviceCheck(
        gpt=__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        device=str(device),
        name=name_of(device),
        memory=available_memory() if device.type == "cpu" else free_memory(device),
        supports=able | {"compile": choose_compile("auto", device, long=True) == "on"},
        processor=processor(),
        threads=torch.get_num_threads(),
        checks=rows,
    )


def _checked(group: str, bound: Bound, check: Check) -> Checked:
    difference, message, verdict = None, "", "equal"
    try:
        expected, found = check.expected(), check.found()
        difference = bound.difference(expected, found)
        if difference or any(not np.array_equal(expected[name], found[name]) for name in expected):
            verdict = "within" if difference <= bound.most else "differs"
    except Skipped as reason:
        verdict, message = "skipped", str(reason)
    except Exception as error:  # whatever a device lacks: the other checks go on
        verdict, message = "refused", next(iter(str(error).strip().splitlines()), type(error).__name__)
    finite = difference if difference is None or isfinite(difference) else None
    return Checked(group, check.name, verdict, finite, bound.unit, bound.most, bound.reason, message)
