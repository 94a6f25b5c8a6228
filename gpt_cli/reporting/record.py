"""What a run has left: its metrics, samples, settings and surroundings. Needs no torch, and changes nothing."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpt_cli.checkpoints.header import Header, read_header
from gpt_cli.checkpoints.list import Overview, is_run, overview
from gpt_cli.checkpoints.logs import Sample, metrics_of, read_log, samples_of
from gpt_cli.checkpoints.run_files import RUNS, RunFiles
from gpt_cli.config import Config
from gpt_cli.config.reading import Likeness, likeness, read_shipped
from gpt_cli.errors import CheckpointError, GptError, counted, shown
from gpt_cli.limits import FIGURE
from gpt_cli.reporting.curves import filled

# the numbers of a line of metrics; further ones are left out
FIGURES = (
    "step",
    "tokens",
    "seconds",
    "loss",
    "smoothed_loss",
    "validation_loss",
    "validation_tokens",
    "bits_per_byte",
    "learning_rate",
    "gradient_norm",
    "tokens_per_second",
)
_AXES = FIGURES[:3]  # these never fall in a run


@dataclass(frozen=True)
class RunRecord:
    """All that a report says of one run. Figures and texts are those of its files, and nobody has verified them."""

    overview: Overview
    name: str  # as `gpt runs` prints it
    metrics: Mapping[str, np.ndarray]  # each of FIGURES -> [lines] float64, NaN where a line lacks it
    samples: tuple[Sample, ...]  # by step
    environment: Mapping[str, str]  # of the last checkpoint: device, dtype, torch, processor, ...
    corpus: Mapping[str, str | int]  # what the run knows of its text
    differs: Likeness | None  # from the shipped config that it is most like
    last_line_at: float | None  # seconds since 1970: when metrics were last written to
    notes: tuple[str, ...]  # sentences on what could not be read

    @property
    def path(self) -> Path:
        return self.overview.path

    @property
    def state(self) -> str:
        """One of run_files.State."""
        return self.overview.state

    @property
    def outcome(self) -> Mapping[str, Any]:
        """How it ended; empty for a run that has not."""
        return self.overview.outcome

    @property
    def config(self) -> Mapping[str, Any]:
        """The resolved settings: section.key -> value; empty where the config cannot be read."""
        if self.overview.config is None:
            return {}
        sections = self.overview.config.model_dump(mode="json")
        return {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}


def read_record(path: Path) -> RunRecord:
    """What one run has left; see `read_records`."""
    return read_records([path])[0]


def read_records(paths: Sequence[Path]) -> list[RunRecord]:
    """What runs have left, whatever their state; what is damaged is left out, and `notes` say so.

    Of metrics that are being written to, the last line may be cut off; it is left out in silence. Raises
    CheckpointError for a path that is not a run, and for metrics or samples beyond what a run can have.
    """
    hint = "gpt runs lists those that there are"
    for path in paths:
        if not path.is_dir():
            raise CheckpointError(shown(path), "there is no such run", hint=hint)
        if not is_run(path):
            raise CheckpointError(shown(path), "this directory holds no run", hint=hint)
    shipped = read_shipped()
    names = [_name(path) for path in paths]
    return [
        # a name that two runs share would say nothing
        _read(path, name if names.count(name) == 1 else str(path), shipped)
        for path, name in zip(paths, names, strict=True)
    ]


def _name(path: Path) -> str:
    """Below the directory of all runs its path there, elsewhere the name of its directory."""
    with suppress(ValueError):
        if (name := str(path.resolve().relative_to(RUNS.resolve()))) != ".":
            return name
    return path.resolve().name


def _read(path: Path, name: str, shipped: Mapping[str, Config]) -> RunRecord:
    run, found = RunFiles(path), overview(path)
    notes = [] if found.problem is None else [found.problem]
    metrics, last_line_at = _metrics(run, notes)
    header = _header(run, notes)
    differs = None if found.config is None else likeness(found.config, path.name, shipped)
    if differs is not None and found.state == "imported":  # it has no text, so it has none that differs
        differs = differs._replace(settings={key: one for key, one in differs.settings.items() if key != "data.source"})
    return RunRecord(
        overview=found,
        name=name,
        metrics=metrics,
        samples=samples_of(read_log(run.samples, CheckpointError)) if run.samples.exists() else (),
        environment={} if header is None else _environment(header),
        corpus={} if header is None else _corpus(header),
        differs=differs,
        last_line_at=last_line_at,
        notes=tuple(dict.fromkeys(notes)),
    )


def _metrics(run: RunFiles, notes: list[str]) -> tuple[dict[str, np.ndarray], float | None]:
    """The figures of all lines, and when the last one was written."""
    columns = {name: array("d") for name in FIGURES}
    num_bad, newest = 0, dict.fromkeys(_AXES, 0.0)
    changed_at = run.metrics.stat().st_mtime if run.metrics.exists() else None
    for found in metrics_of(run.metrics, CheckpointError):
        figures = {name: _curved(found.get(name, math.nan)) for name in FIGURES}
        if not newest["step"] < figures["step"]:
            num_bad += 1
            continue
        for axis in _AXES:
            figures[axis] = figures[axis] if newest[axis] <= figures[axis] else math.nan
            newest[axis] = max(newest[axis], figures[axis])  # NaN is not greater
        for name, column in columns.items():
            column.append(figures[name])
    if num_bad:
        notes.append(f"{shown(run.metrics)}: the report leaves out {counted(num_bad, 'line')}, damaged or out of order")
    metrics = {name: np.array(column) for name, column in columns.items()}
    metrics["smoothed_loss"] = filled(metrics["step"], metrics["loss"], metrics["smoothed_loss"])
    return metrics, changed_at


def _curved(value: float) -> float:
    """A figure as a curve can have it: one so small that its inverse overflows where curves are scaled is NaN."""
    return float(value) if value == 0 or abs(value) > 1 / FIGURE else math.nan


def _header(run: RunFiles, notes: list[str]) -> Header | None:
    """The header of the last checkpoint, else of the best; None without one that can be read."""
    for path in (*reversed(run.steps().values()), run.best):
        try:
            if path.exists():
                return read_header(path)
        except GptError as error:
            notes.append(str(error))
    return None


def _environment(header: Header) -> dict[str, str]:
    """What the checkpoint says about the machine and the program that wrote it."""
    with suppress(CheckpointError):
        return {"version": header.metadata["written_by"], **header.progress.environment}
    return {"version": header.metadata["written_by"]}


def _corpus(header: Header) -> dict[str, str | int]:
    """What the checkpoint says about its text: tokens, digest, and the vocabulary that it was read with."""
    found: dict[str, str | int] = {}
    with suppress(CheckpointError):
        progress = asdict(header.progress)
        kept = ("num_training_tokens", "data_digest", "began_from")
        found = {key: progress[key] for key in kept if progress[key] is not None}
    if vocabulary := header.shapes.get("token_embedding.weight"):
        found["vocab_size"] = vocabulary[0]
    return found
