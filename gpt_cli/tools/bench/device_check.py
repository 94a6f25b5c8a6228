"""`gpt bench --check-device`: compute the same on a device and on the CPU, and report the differences."""

from __future__ import annotations

import platform
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch

from gpt_cli.common import __version__
from gpt_cli.common.host import Host
from gpt_cli.common.machine.devices import (
    Ability,
    accelerator,
    choose_compile,
    choose_device,
    device_name,
    free_memory,
    processor,
    supports,
    use_threads,
)
from gpt_cli.common.machine.memory import available_memory, reuse_memory
from gpt_cli.common.results import WIDTH, Result
from gpt_cli.common.tables import cut
from gpt_cli.common.units import size
from gpt_cli.config import Config
from gpt_cli.errors import EnvironmentFailure, GptError, counted, together
from gpt_cli.tools.bench.device_checks import Bound, DeviceRuns, Pair, Skipped, checks
from gpt_cli.tools.bench.request import BenchRequest

_COLUMNS = 80  # of an issue
Verdict = Literal["equal", "within", "differs", "refused", "skipped"]


@dataclass(frozen=True)
class Checked:
    """Outcome of one check; `difference` is in the unit of `Group.bound`, or None without a finite difference."""

    name: str
    verdict: Verdict
    difference: float | None
    message: str | None  # why it was refused or skipped


@dataclass(frozen=True)
class Group:
    """Checks that share a bound on their differences."""

    title: str
    bound: Bound
    checks: list[Checked]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report: title and bound, the bound's reason, and the outcome of each check."""
        most, unit = self.bound.most, self.bound.unit
        yield f"{self.title}: {f'at most {most:,g} {unit}' if most else 'equal bits'}"
        yield f"({self.bound.reason})"
        for row in self.checks:
            computed = row.verdict in ("equal", "within", "differs")
            apart = row.difference if computed else None
            shown = "" if apart is None else f"{apart:,.0f}" if apart >= 10 else f"{apart:.2g}"
            yield f"  {row.name:<58}{shown:>8}  {row.verdict}"
            if row.message:
                yield f"    {row.message}"


@dataclass(frozen=True)
class DeviceCheck(Result):
    """Differences between the results of a device and those of the CPU of the same machine."""

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
    groups: list[Group]

    def verdicts(self) -> Counter[Verdict]:
        """Count the checks by verdict: equal, within, differs, refused, skipped."""
        return Counter(row.verdict for group in self.groups for row in group.checks)

    def as_text(self, width: int = WIDTH) -> str:
        """Return the report, 80 columns wide to paste into an issue: machine, checks by bound, counts of verdicts."""
        memory = "" if self.memory is None else f", {size(self.memory)} of memory free"
        can, cannot = (
            ", ".join(what for what, has in self.supports.items() if has == wanted) for wanted in (True, False)
        )
        lines = [
            f"gpt {self.gpt}, torch {self.torch}, Python {self.python}, {self.system}",
            f"{self.device}: {self.name}{memory}",
            f"{self.device}: has {can or 'nothing of'}; lacks {cannot or 'nothing'}",
            f"beside the CPU: {self.processor}, {counted(self.threads, 'thread')}",
            "each check: the largest difference, in the unit of the bound above it",
        ]
        for group in self.groups:
            lines += ["", *group.lines()]
        verdicts = self.verdicts()
        counts = ", ".join(f"{verdicts[one]} {one}" for one in get_args(Verdict) if verdicts[one])
        rounding = "a rounding: 2^-24 of the largest number of an array, in bfloat16 2^-9"
        lines += ["", rounding, f"{self.device}: {counted(verdicts.total(), 'check')}: {counts}"]
        return "\n".join(cut(line, _COLUMNS) for line in lines)

    def failure(self) -> GptError | None:
        """Return an error if results differ from the CPU's beyond a bound or the device failed a check, else None."""
        tally, hint = self.verdicts(), "paste the lines of this check into an issue"
        wrong = {
            f"{self.device} gives other numbers than the CPU in {counted(tally['differs'], 'check')}": tally["differs"],
            f"{self.device} fails in {counted(tally['refused'], 'check')}": tally["refused"],
        }
        errors = [EnvironmentFailure("‹check_device›", sentence, hint=hint) for sentence, num in wrong.items() if num]
        return together(errors) if errors else None


def check_device(request: BenchRequest, _config: Config, host: Host) -> DeviceCheck:
    """Run all checks on the requested device; raise EnvironmentFailure if there is no such device."""
    use_threads(request.threads)
    reuse_memory()
    groups = list[Group]()
    try:
        device = choose_device(request.check_device or "auto")
    except EnvironmentFailure as error:  # whose hint names another flag, and without an accelerator the CPU
        hint = error.hint and error.hint.replace("‹device", "‹check_device")
        if accelerator() is None:
            hint = "‹check_device› cuda, mps or xpu, on a machine that has one"
        raise EnvironmentFailure("‹check_device›", error.sentence, hint=hint) from None
    with tempfile.TemporaryDirectory(prefix="gpt-check-") as folder:
        all_checks = checks(DeviceRuns("cpu", Path(folder)), DeviceRuns(str(device), Path(folder)))
        with host.counting(f"checking {device}", sum(len(pairs) for _, _, pairs in all_checks), "checks") as count:
            count(0)
            for title, bound, pairs in all_checks:
                groups.append(Group(title, bound, []))
                for name, pair in pairs.items():
                    groups[-1].checks.append(_checked(name, bound, pair))
                    count(1)
    able = {what: supports(device, what) for what in get_args(Ability)}
    return DeviceCheck(
        gpt=__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
        device=str(device),
        name=device_name(device),
        memory=available_memory() if device.type == "cpu" else free_memory(device),
        supports=able | {"compile": choose_compile("auto", device, long=True) == "on"},
        processor=processor(),
        threads=torch.get_num_threads(),
        groups=groups,
    )


def _checked(name: str, bound: Bound, pair: Pair) -> Checked:
    try:
        expected, computed = (compute() for compute in pair)
        difference = bound.difference(expected, computed)
    except Skipped as reason:
        return Checked(name, "skipped", None, str(reason))
    except Exception as error:  # whatever a device lacks: the other checks go on
        lines = f"{error}".strip().splitlines() or [type(error).__name__]
        return Checked(name, "refused", None, lines[0])
    if all(np.array_equal(expected[one], computed[one]) for one in expected):
        return Checked(name, "equal", 0.0, None)
    apart = difference if isfinite(difference) else None
    return Checked(name, "within" if difference <= bound.most else "differs", apart, None)
