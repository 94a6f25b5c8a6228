"""What `gpt sweep` does: it checks every point, trains those that are not finished, and compares them all.

Needs no torch, but to count GPUs for `--jobs`.
"""

from __future__ import annotations

import json as json_module
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from gpt_cli.amounts import with_error
from gpt_cli.checkpoints.list import Overview, have_one_tokenizer, is_run, overview
from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.checkpoints.run_files import RUNS, SWEEP
from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.signals import signal_name
from gpt_cli.cli.terminal import Console, hurried_stdout
from gpt_cli.cli.work.report import MOST_ON_A_PAGE
from gpt_cli.cli.work.runs import FIGURES, explain_losses, figures, print_table, row, sorted_by
from gpt_cli.cli.work.sweeping import Point, look, train_points, written
from gpt_cli.config import Config
from gpt_cli.config.reading import read_config, shipped_configs
from gpt_cli.config.sweeps import Sweep, read_sweep
from gpt_cli.errors import (
    CheckpointError,
    DataError,
    EnvironmentFailure,
    GptError,
    UsageError,
    advised,
    counted,
    reason,
    shown,
    visible,
)
from gpt_cli.files import require_no_file, write_durably
from gpt_cli.limits import SWEEP_RECORD_BYTES
from gpt_cli.loggers.installed import require_installed
from gpt_cli.machine.sharing import cores
from gpt_cli.opening import read_bytes
from gpt_cli.ranks.place import place_of
from gpt_cli.reporting.figures import Mean, means
from gpt_cli.tables import table

_KINDS: dict[int, type[GptError]] = {
    kind.exit_code: kind for kind in (GptError, UsageError, DataError, CheckpointError)
}
_MOST = ("the record of a sweep", SWEEP_RECORD_BYTES)
_NAME_LENGTH = 60


def sweep(
    *, file: Path, out: Path | None, max_time: str | None, jobs: int, dry_run: bool, json: bool, quiet: bool
) -> int:
    """Train the points of a file; returns the exit code, which for a stop by a signal is 128 and its number."""
    console = Console(quiet)
    if (place := place_of(os.environ)) is not None:
        raise UsageError("gpt sweep", f"it starts its own processes, so start it without {place.launcher}")
    found = read_sweep(file, max_time)
    if any("-" in _sources(config) for config in found.configs):
        sentence = "many runs cannot read stdin, so save the text to a file and name that"
        raise UsageError(f"{file}: data.source", sentence)
    require_installed(sorted({name for config in found.configs for name in config.train.log_to}))
    directory = RUNS / file.stem if out is None else out
    _require_same(directory, found)
    points = [Point(directory / _name(number, point), point) for number, point in enumerate(found.points)]
    if dry_run:
        _show_plan(points, console, as_json=json)
        return 0
    environments = _shares(jobs, found.configs, console)
    with sole_trainer(directory, console.warn, "sweep"):
        _require_same(directory, found)  # another sweep may have been there since
        write_durably(directory / SWEEP, [json_module.dumps(dict(found.record), indent=1).encode() + b"\n"])
        todo = [point for point in points if not is_done(point.path)]
        if len(todo) < len(points):
            done = len(points) - len(todo)
            runs = counted(len(points), "run")
            console.notice(f"{done} of {runs} had already ended" if todo else f"all {runs} had already ended")
        ended = train_points(found, todo, max_time, environments, console)
        runs = sorted_by([look(point.path) for point in points], "loss")
        with nullcontext() if ended.signal is None else hurried_stdout():
            _show_results(points, runs, directory, console, as_json=json, repeats=found.repeats)
        _write_report(runs, directory, console)
    if ended.signal is not None:
        command = f"gpt sweep {shlex.quote(str(file))}" + (f" --out {shlex.quote(str(out))}" if out else "")
        command += "" if max_time is None else f" --max-time {max_time}"
        console.warn(f"stopped by {signal_name(ended.signal)}; continue: {command}")
        return 128 + ended.signal
    if ended.failed:
        names = ", ".join(visible(point.path.name) for point, _ in ended.failed)
        code = ended.failed[0][1]
        sentence = (
            f"{len(ended.failed)} of {counted(len(points), 'run')} failed, the first with exit code {code}: {names}"
        )
        raise _KINDS.get(code, EnvironmentFailure)(shown(directory), sentence, hint="the same command tries them again")
    if runs[0].result is not None:
        console.notice(f"next: gpt sample --run {shlex.quote(str(runs[0].path))}")
    return 0


def _sources(config: Config) -> list[str]:
    """The sources of text of a config."""
    source = config.data.source
    return [source] if isinstance(source, str) else source


def is_done(run: Path) -> bool:
    """Whether a run has ended for good: by itself, or because it diverged."""
    return overview(run).state in ("finished", "diverged")


def _name(number: int, settings: Mapping[str, Any]) -> str:
    """The directory of a point: 003-learning_rate-0.001."""
    words = [f"{key.partition('.')[2]}-{written(value)}" for key, value in settings.items()]
    short = re.sub(r"[^\w.+-]+", "-", "-".join(words))[:_NAME_LENGTH]
    return f"{number:03}-{short.strip('-')}"


def _require_same(directory: Path, found: Sweep) -> None:
    """Raise UsageError where a directory holds another sweep, or what no sweep wrote."""
    record = directory / SWEEP
    if not record.exists():
        if directory.is_dir() and (others := sorted(p.name for p in directory.iterdir() if not p.name.startswith("."))):
            sentence = f"it contains {visible(others[0])}, which no sweep wrote; name an empty or a new directory"
            raise UsageError(shown(directory), sentence, hint=f"--out {shlex.quote(f'{directory}-sweep')}")
        require_no_file(directory)
        return
    try:
        before = json_module.loads(read_bytes(record, CheckpointError, most=_MOST))
        assert isinstance(before, dict)
    except (ValueError, RecursionError, AssertionError):
        raise CheckpointError(shown(record), "this is no record of a sweep", hint="name another --out") from None
    keys = dict.fromkeys([*before, *found.record])
    changed = [
        UsageError(
            shown(found.path),
            f"{key} was {_or_nothing(before, key)} in this sweep and is {_or_nothing(found.record, key)} now",
        )
        for key in keys
        if before.get(key) != found.record.get(key)
    ]
    if changed:
        raise advised(changed, f"undo the change, or begin another sweep: --out {shlex.quote(f'{directory}-2')}")


def _or_nothing(record: Mapping[str, Any], key: str) -> str:
    return "not set" if record.get(key) is None else visible(written(record[key]))


def _shares(jobs: int, configs: Sequence[Config], console: Console) -> list[dict[str, str]]:
    """What each of so many jobs finds in its environment; `shares` says which. Raises EnvironmentFailure."""
    if jobs == 1:
        return [{}]
    gpus = 0
    if any(config.train.device != "cpu" for config in configs):
        with importing_torch():
            from gpt_cli.machine.devices import num_gpus
        gpus = num_gpus()
    found = shares(jobs, configs, cores(), gpus, os.environ)
    threads = counted(int(found[0]["OMP_NUM_THREADS"]), "thread")  # all have as many
    each = f"{threads} and a GPU" if gpus else threads
    console.notice(f"{jobs} runs at once, each with {each}")
    return found


def shares(
    jobs: int, configs: Sequence[Config], num_cores: int, num_gpus: int, environ: Mapping[str, str]
) -> list[dict[str, str]]:
    """A GPU for each job where there are GPUs, and its share of the cores, unless the user has chosen threads."""
    devices = {config.train.device for config in configs}
    on_gpus = num_gpus > 0 and devices != {"cpu"}
    if numbered := sorted(device for device in devices if ":" in device):
        sentence = f"{jobs} runs at once would share the one GPU that train.device names, {numbered[0]}; use auto"
        raise EnvironmentFailure("--jobs", sentence)
    if on_gpus and jobs > num_gpus:
        sentence = f"{jobs} runs at once need a GPU each, and torch finds {counted(num_gpus, 'GPU')}"
        raise EnvironmentFailure("--jobs", sentence, hint=f"--jobs {num_gpus}")
    most = max([config.train.threads or 1 for config in configs])
    if jobs * most > num_cores:
        need = "a core" if most == 1 else f"{most} cores"
        sentence = f"{jobs} runs at once need {need} each, and this program may use {counted(num_cores, 'core')}"
        raise EnvironmentFailure("--jobs", sentence, hint=f"--jobs {max(1, num_cores // most)}")
    visible_gpus = environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if environ.get("CUDA_VISIBLE_DEVICES") else None
    found = []
    for number in range(jobs):
        share = {"OMP_NUM_THREADS": environ.get("OMP_NUM_THREADS", str(num_cores // jobs))}
        if on_gpus:
            share["CUDA_VISIBLE_DEVICES"] = visible_gpus[number] if visible_gpus else str(number)
        found.append(share)
    return found


def _show_plan(points: Sequence[Point], console: Console, *, as_json: bool) -> None:
    """Print the runs that would be trained, and how far they are."""
    states = [look(point.path).state if point.path.exists() else "new" for point in points]
    if as_json:
        rows = [
            {"run": str(point.path), "state": state, "settings": dict(point.settings)}
            for point, state in zip(points, states, strict=True)
        ]
        console.json({"runs": rows})
        return
    rows = [(visible(point.path), state, _settings(point)) for point, state in zip(points, states, strict=True)]
    console.result(table([("run", "state", "settings"), *rows]))


def _settings(point: Point) -> str:
    return " ".join(f"{key}={visible(written(value))}" for key, value in point.settings.items())


def _show_results(
    points: Sequence[Point], runs: Sequence[Overview], directory: Path, console: Console, *, as_json: bool, repeats: int
) -> None:
    """Print all points, the best first, and where they are repeated the means over seeds."""
    by_path, by_token = {point.path: point for point in points}, have_one_tokenizer(runs)
    unit, found = "nats/token" if by_token else "bits/byte", list[Mean]()
    if repeats > 1:
        settings = [{key: written(value) for key, value in by_path[run.path].settings.items()} for run in runs]
        found = means([(of_run, run.result) for of_run, run in zip(settings, runs, strict=True)], by_token=by_token)
    if as_json:
        shipped = {name: read_config(str(path)) for name, path in shipped_configs().items()}
        rows = [row(run, directory, shipped) | {"settings": dict(by_path[run.path].settings)} for run in runs]
        means_of_all = {"means": [mean._asdict() | {"unit": unit} for mean in found]} if found else {}
        console.json({"runs": rows, **means_of_all})
    else:
        cells = [(*figures(run, directory), run.problem or _settings(by_path[run.path])) for run in runs]
        print_table(console, (*FIGURES, "settings"), cells, by_token=by_token)
        explain_losses(runs, console)
        if found:
            head = (f"mean {unit}", "runs", "settings")
            console.result("\n" + table([head, *map(_cells_of_mean, found)]))


def _cells_of_mean(mean: Mean) -> tuple[str, ...]:
    loss = "" if mean.mean is None else with_error(mean.mean, mean.error)
    return loss, str(mean.num_runs), " ".join(f"{key}={visible(value)}" for key, value in mean.settings.items())


def _write_report(runs: Sequence[Overview], directory: Path, console: Console) -> None:
    """Write the page of the runs that have begun, of many the best; the sweep is no worse without it."""
    from gpt_cli.cli.work.reporting import write_page

    begun = [run.path for run in runs if is_run(run.path)]
    if not begun:
        return
    page, chosen = directory / "report.html", sorted(begun[:MOST_ON_A_PAGE])
    try:
        write_page(chosen, page)
    except (GptError, OSError) as error:
        why = str(error) if isinstance(error, GptError) else reason(error)
        console.warn(f"{why}; there is no report of this sweep")
        return
    what = "all runs" if len(chosen) == len(begun) else f"the best {len(chosen)} of {counted(len(begun), 'run')}"
    console.notice(f"the curves of {what}: {page}")
