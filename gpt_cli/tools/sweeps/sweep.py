"""Train the points (runs) of a sweep that have not ended, and compare all points."""

import heapq
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.checkpoints.run_list import have_one_tokenizer, is_run
from gpt_cli.checkpoints.run_paths import SWEEP, SWEEP_PAGE
from gpt_cli.common.files import write_durably
from gpt_cli.common.host import Host
from gpt_cli.common.machine.cpu_contention import cores
from gpt_cli.common.machine.failures import reason
from gpt_cli.common.results import Result
from gpt_cli.common.tables import Rows
from gpt_cli.common.units import duration
from gpt_cli.config import Config
from gpt_cli.errors import CheckpointError, DataError, EnvironmentFailure, GptError, UsageError, counted, shown, visible
from gpt_cli.tools.reports.compare_runs import Mean, means, repeated, rows_of_means
from gpt_cli.tools.reports.report import RunReport
from gpt_cli.tools.reports.run_record import read_record
from gpt_cli.tools.reports.run_table import ListedRun, TableOfRuns, listed, remarks_on, sorted_by
from gpt_cli.tools.sweeps.processes import Hearing, Jobs, point_state, train_points
from gpt_cli.tools.sweeps.request import Point, SweepRequest, require_same
from gpt_cli.tools.sweeps.sweep_file import Sweep

_ENDED = ("finished", "diverged")
_START = 4.0  # seconds before the first step of a run, most of them for the import of torch
# the variable that restricts a process to some of the devices, by device type
_HIDES = {"cuda": "CUDA_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK"}
_KINDS = {kind.exit_code: kind for kind in (GptError, UsageError, DataError, CheckpointError)}


@dataclass(frozen=True)
class Planned(Result):
    """Result of a dry run: all runs of a sweep, the state of each, and the estimated seconds of training."""

    points: tuple[Point, ...]
    states: tuple[str, ...]
    seconds: float  # estimate until all runs have ended; 0 if all have

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `gpt sweep --dry-run --json` prints."""
        both = zip(self.points, self.states, strict=True)
        runs = [{"run": str(p.path), "state": state, "settings": p.settings} for p, state in both]
        return {"runs": runs, "seconds": self.seconds}

    def parts(self) -> list[Rows]:
        """Return a table with a row for each run."""
        both = zip(self.points, self.states, strict=True)
        return [[("run", "state", "settings"), *((visible(p.path), state, str(p)) for p, state in both)]]


@dataclass(frozen=True)
class Swept(TableOfRuns):
    """Result of `gpt sweep`: the runs, the best first, each with the settings that the sweep varies."""

    directory: Path
    points: tuple[Point, ...]
    runs: tuple[ListedRun, ...]  # of these points
    means: tuple[Mean, ...]  # over seeds, for each combination of settings
    unit: str  # of the means
    failed: tuple[tuple[Point, int], ...] = ()  # with exit codes; a run that diverged has not failed
    signal: int | None = None  # that stopped the sweep
    remarks: tuple[str, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `gpt sweep --json` prints."""
        both = zip(self.points, self.runs, strict=True)
        rows = [run.as_dict() | {"settings": point.settings} for point, run in both]
        means = [mean.as_dict() | {"unit": self.unit} for mean in self.means]
        return {"runs": rows, "means": means} if repeated(self.means) else {"runs": rows}

    def last_cells(self) -> Sequence[str]:
        """Return the table's last column: a heading, then each run's settings, or why the run cannot be read."""
        both = zip(self.points, self.runs, strict=True)
        return ["settings", *(run.overview.problem or str(point) for point, run in both)]

    def below(self) -> list[Rows]:
        """Return a table of means over seeds; an empty list if no settings were trained with several seeds."""
        return [rows_of_means(self.means, self.unit)] if repeated(self.means) else []

    def failure(self) -> GptError | None:
        """Return an error that names the failed runs; None if no run failed or a signal stopped the sweep."""
        if not self.failed or self.signal is not None:
            return None
        names, code = ", ".join(visible(point.path.name) for point, _ in self.failed), self.failed[0][1]
        runs = counted(len(self.points), "run")
        sentence = f"{len(self.failed)} of {runs} failed, the first with exit code {code}: {names}"
        kind = _KINDS.get(code, EnvironmentFailure)
        return kind(shown(self.directory), sentence, hint="the same command tries them again")


def sweep(
    request: SweepRequest,
    target: tuple[Sweep, Path, list[Point]],
    host: Host,
    hearing: Hearing = nullcontext,
    flags: Sequence[str] | None = None,
) -> Planned | Swept:
    """Train the points (runs) that have not ended, write a report page, and return a comparison of all points.

    `target` is the result of `request.find`. Command lines of trainings end with `flags`; None silences the trainings.
    `hearing(f)` is a context in which a signal such as Ctrl-C calls f; this function passes an f that sends the signal
    on to all trainings. A dry run trains nothing and returns a Planned.
    """
    plan, directory, points = target
    if request.dry_run:
        states = [point_state(point.path).state if point.path.exists() else "new" for point in points]
        todo = [point for state, point in zip(states, points, strict=True) if state not in _ENDED]
        return Planned(tuple(points), tuple(states), _expected(todo, request.jobs, host))
    environments = _shares(request.jobs, plan.configs, host)
    with sole_trainer(directory, host.warn, "sweep"):
        require_same(directory, plan)  # another sweep may have been there since
        write_durably(directory / SWEEP, [json.dumps(dict(plan.record), indent=1).encode() + b"\n"])
        todo = [point for point in points if point_state(point.path).state not in _ENDED]
        if len(todo) < len(points):
            done, runs = len(points) - len(todo), counted(len(points), "run")
            host.notice(f"{done} of {runs} had already ended" if todo else f"all {runs} had already ended")
        _expected(todo, request.jobs, host)
        ended = train_points(plan, todo, environments, host, hearing, flags)
        result = _compared(directory, points, ended)
        _write_page(result, host)
    return result


def _expected(points: Sequence[Point], jobs: int, host: Host) -> float:
    """Estimate and report the seconds to train `points`, `jobs` at once; time steps if a run has no max_time."""
    if not points:
        return 0.0
    each = [point.config.train.max_time or 0.0 for point in points]
    if not all(each):
        with host.importing():
            from gpt_cli.training.auto_config.auto_config import seconds_of
        with host.working("timing a step"):
            each = seconds_of([point.config for point in points])
    ends = [0.0] * jobs  # of each job's last run so far
    for seconds in each:
        heapq.heapreplace(ends, ends[0] + _START + seconds)
    one = f"{duration(sum(each) / len(each))} of steps and {_START:.0f} s of start-up"
    host.notice(f"{counted(len(each), 'run')}, about {one} per run: about {duration(max(ends))} in total")
    return max(ends)


def _compared(directory: Path, all_points: Sequence[Point], ended: Jobs) -> Swept:
    """Return all runs of a sweep in their present states, the best first, with failures and stop signal of `ended`."""
    by_path = {point.path: point for point in all_points}
    runs = sorted_by([point_state(path) for path in by_path], "loss")
    points, by_token = tuple(by_path[run.path] for run in runs), have_one_tokenizer(runs)
    over_seeds = means([(by_path[run.path].settings, run.result) for run in runs], by_token=by_token)
    unit = "nats/token" if by_token else "bits/byte"
    rows = listed(runs)
    remarks = tuple(remarks_on(rows))
    return Swept(directory, points, rows, tuple(over_seeds), unit, tuple(ended.failed), ended.received, remarks)


def _write_page(result: Swept, host: Host) -> None:
    """Write a report page of the runs that have begun (only the best, if too many for a page); warn on failure."""
    if not (begun := [point.path for point in result.points if is_run(point.path)]):
        return
    page = result.directory / SWEEP_PAGE
    try:
        report = RunReport(tuple(map(read_record, sorted(begun))))
        write_durably(page, [report.as_page().encode()])
    except (GptError, OSError) as error:
        why = str(error) if isinstance(error, GptError) else reason(error)
        host.warn(f"{why}; there is no report of this sweep")
        return
    most = len(report.on_the_page())
    what = "all runs" if most == len(begun) else f"the best {most} of {counted(len(begun), 'run')}"
    host.notice(f"the curves of {what}: {page}")


def _shares(jobs: int, configs: Sequence[Config], host: Host) -> list[dict[str, str]]:
    """Return the environment variables of each of `jobs` simultaneous trainings; raise errors of `share_machine`."""
    if jobs == 1:
        return [{}]
    gpus, hides = 0, None
    if any(config.train.device != "cpu" for config in configs):
        with host.importing():
            import torch

            from gpt_cli.common.machine.devices import accelerator
        hides = _HIDES.get(there.type) if (there := accelerator()) else None
        if torch.version.hip and os.environ.get("HIP_VISIBLE_DEVICES"):  # on AMD GPUs, it outranks CUDA_VISIBLE_DEVICES
            hides = "HIP_VISIBLE_DEVICES"
        gpus = torch.accelerator.device_count() if hides else 1 if there else 0
    by_job = share_machine(jobs, configs, cores(), gpus, os.environ, hides)
    number = by_job[0]["OMP_NUM_THREADS"]  # equal for all jobs; the user may have set a list, such as 4,2
    threads = counted(int(number), "thread") if number.isdecimal() else f"OMP_NUM_THREADS={number}"
    if any(config.train.threads for config in configs):
        threads = "as many threads as train.threads sets"
    each = f"{threads} and a GPU" if gpus else threads
    host.notice(f"{jobs} runs at once, each with {each}")
    return by_job


def share_machine(
    jobs: int, configs: Sequence[Config], num_cores: int, num_gpus: int, environ: Mapping[str, str], hides: str | None
) -> list[dict[str, str]]:
    """Return each job's environment variables: one GPU, if there are any, and its share of cores as OMP_NUM_THREADS.

    An OMP_NUM_THREADS that the user has set stays. `num_gpus` is 0 for runs on the CPU. `hides` is the variable that
    lists the GPUs of a process; with None, no GPU is assigned. Raises EnvironmentFailure if the jobs do not fit.
    """
    if numbered := sorted(config.train.device for config in configs if ":" in config.train.device):
        sentence = f"{jobs} runs at once would share the one GPU that train.device names, {numbered[0]}; use auto"
        raise EnvironmentFailure("‹jobs›", sentence)
    if num_gpus and jobs > num_gpus:
        sentence = f"{jobs} runs at once need a GPU each, but torch finds {counted(num_gpus, 'GPU')}"
        raise EnvironmentFailure("‹jobs›", sentence, hint=f"‹jobs={num_gpus}›")
    most = max([config.train.threads or 1 for config in configs])
    if jobs * most > num_cores:
        need = "a core" if most == 1 else f"{most} cores"
        sentence = f"{jobs} runs at once need {need} each, but this program may use {counted(num_cores, 'core')}"
        raise EnvironmentFailure("‹jobs›", sentence, hint=f"‹jobs={max(1, num_cores // most)}›")
    threads = {"OMP_NUM_THREADS": environ.get("OMP_NUM_THREADS") or str(num_cores // jobs)}
    if not num_gpus or hides is None:
        return [threads] * jobs
    gpus = environ[hides].split(",") if environ.get(hides) else [*map(str, range(jobs))]
    return [{**threads, hides: gpus[number]} for number in range(jobs)]
