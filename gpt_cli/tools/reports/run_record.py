"""Read the record of a run: metrics, samples, settings and environment. Needs no torch, and writes nothing."""

import math
from array import array
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gpt_cli.checkpoints.header import Header, read_header
from gpt_cli.checkpoints.metrics_files import LoggedSample, last_metrics, metrics_of, read_log, samples_of
from gpt_cli.checkpoints.run_list import Overview, RunLoss, likeness_of, overview
from gpt_cli.checkpoints.run_paths import RunFiles, short_run_name
from gpt_cli.common.limits import FIGURE
from gpt_cli.common.results import Figures
from gpt_cli.config.load import Likeness, dotted_keys
from gpt_cli.errors import CheckpointError, GptError, counted, shown

AXES = ("step", "tokens", "seconds")  # these never fall in a run; seconds are those of training steps
SMALL = ("bits_per_byte", "learning_rate", "gradient_norm", "tokens_per_second")  # in the small panels of a drawing
QUANTITIES = ("loss", "smoothed_loss", "validation_loss", *SMALL)  # losses in nats per token
FIGURES = (*AXES, *QUANTITIES, "validation_tokens")  # of a line of metrics; further numbers are left out


@dataclass(frozen=True, eq=False)
class RunRecord(Figures):
    """What a report shows of one run (metrics, samples, settings, ...), read from its files without verifying them."""

    overview: Overview
    name: str  # as `gpt runs` prints it
    metrics: Mapping[str, np.ndarray]  # each of FIGURES -> [lines] float64, NaN where a line lacks it
    samples: tuple[LoggedSample, ...]  # by step
    environment: Mapping[str, str]  # of the last checkpoint: device, dtype, torch, processor, ...
    corpus: Mapping[str, str | int]  # facts about the training text
    teachers: tuple[int, ...]  # the last step of each model that is a teacher
    differs: Likeness | None  # the settings that differ from the most similar shipped config
    last_line_at: float | None  # seconds since 1970: when metrics were last written to
    notes: tuple[str, ...]  # sentences on what could not be read

    _repr_keys = ("name", "state", "steps", "loss", "validation_loss")

    @property
    def path(self) -> Path:
        return self.overview.path

    @property
    def state(self) -> str:
        """State of the run, one of run_paths.State, such as "finished"."""
        return self.overview.state

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The resolved settings of the run, section.key -> value; empty if the config cannot be read."""
        return {} if self.overview.config is None else dotted_keys(self.overview.config.model_dump(mode="json"))

    @property
    def result(self) -> RunLoss | None:
        """The validation loss that ranks the run: after training, else the lowest logged; None if there is none."""
        losses = self.metrics["validation_loss"]
        if self.overview.result is not None or not np.isfinite(losses).any():
            return self.overview.result
        best = int(np.nanargmin(losses))
        bits = _number(float(self.metrics["bits_per_byte"][best]))
        return RunLoss(float(losses[best]), None, bits, closed=False)

    def curve(self, quantity: str, axis: str = "step") -> tuple[np.ndarray, np.ndarray]:
        """Return `axis` as x and `quantity` as y, float64 [points] each, from metrics lines where both are finite."""
        x, y = self.metrics[axis], self.metrics[quantity]
        there = np.isfinite(x) & np.isfinite(y)
        return x[there], y[there]

    @property
    def models(self) -> list[dict[str, int | float | None]]:
        """The models that the run trains in turn, teacher first: first and last step, lowest validation loss (nats)."""
        steps, losses = self.curve("validation_loss")
        ends = [*self.teachers, max((*self.teachers, self.overview.steps or 0))]
        models = list[dict[str, int | float | None]]()
        for first, last in pairwise([0, *ends]):
            lowest = min(losses[(steps > first) & (steps <= last)].tolist(), default=None)
            models.append({"first_step": first + 1, "last_step": last, "validation_loss": lowest})
        return models

    def final_figures(self) -> dict[str, float | int | None]:
        """Return the run's final figures by name, None for unknown ones. Losses are in nats per token.

        `loss` is the training loss in the last line of metrics, `best_validation_loss` the lowest during training.
        `validation_loss` and `bits_per_byte` are from the evaluation after training, or else from the last evaluation;
        `validation_loss_error` is the standard error of the loss after training. `tokens_per_second` is the rate of the
        whole training, or, until a training has ended, the median of the lines.
        """
        ended, speeds = self.overview.outcome, self.curve("tokens_per_second")[1]
        tokens = _number(ended.get("tokens"), self._last("tokens"))
        median = float(np.median(speeds)) if len(speeds) else None
        return {
            "steps": self.overview.steps,
            "tokens": None if tokens is None else int(tokens),
            "seconds": _number(ended.get("seconds"), self._last("seconds")),
            "loss": self._last("loss"),
            "smoothed_loss": self._last("smoothed_loss"),
            "best_validation_loss": self.overview.best_loss,
            "validation_loss": _number(ended.get("validation_loss"), self._last("validation_loss")),
            "validation_loss_error": _number(ended.get("validation_loss_error")),
            "bits_per_byte": _number(ended.get("bits_per_byte"), self._last("bits_per_byte")),
            "tokens_per_second": _number(ended.get("tokens_per_second"), median),
            "parameters": self.overview.num_parameters,
        }

    def _last(self, quantity: str) -> float | None:
        """Return the last finite value of a quantity; None if there is none."""
        values = self.curve(quantity)[1]
        return float(values[-1]) if len(values) else None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields of the run that `gpt report --json` prints."""
        steps, losses = self.curve("validation_loss")
        best = int(np.argmin(losses)) if len(losses) else None
        return {
            "run": str(self.path),
            "name": self.name,
            "state": self.state,
            **self.final_figures(),
            "last": {name: self._last(name) for name in QUANTITIES},
            "best": None if best is None else {"step": int(steps[best]), "validation_loss": float(losses[best])},
            "closed": self.result is not None and self.result.closed,
            "config": self.differs and self.differs.shipped,
            "differs": dict(self.differs.settings) if self.differs else {},
            "models": self.models,
            "notes": list(self.notes),
        }


def _number(*candidates: Any) -> float | int | None:
    """Return the first of the candidates that is a finite number; None if there is none."""
    return next((one for one in candidates if type(one) in (int, float) and math.isfinite(one)), None)


def read_record(path: Path) -> RunRecord:
    """Return the record of the run at `path`, in any state; its `notes` report damaged data, which the record omits.

    An incomplete last line of metrics, which a training may be writing, is left out without a note. Raises
    CheckpointError for metrics or samples larger than a run can have.
    """
    run, summary = RunFiles(path), overview(path)
    notes = [] if summary.problem is None else [summary.problem]
    metrics, last_line_at = _metrics(run, notes)
    header = _header(run, notes)
    environment, corpus, teachers = ({}, {}, ()) if header is None else _facts(header)
    # until a model is saved for the first time, the newest checkpoint is its teacher's
    if header and next(last_metrics(run.metrics), {}).get("model", 1) > len(teachers) + 1:
        teachers = (*teachers, header.step)
    return RunRecord(
        overview=summary,
        name=short_run_name(path),
        metrics=metrics,
        samples=samples_of(read_log(run.samples, CheckpointError)) if run.samples.exists() else (),
        environment=environment,
        corpus=corpus,
        teachers=teachers,
        differs=likeness_of(summary),
        last_line_at=last_line_at,
        notes=tuple(dict.fromkeys(notes)),
    )


def _metrics(run: RunFiles, notes: list[str]) -> tuple[dict[str, np.ndarray], float | None]:
    """Return the logged FIGURES (name -> float64 [lines]) and when they changed (s), or None; add faults to `notes`."""
    columns = {name: array("d") for name in FIGURES}
    num_bad, newest = 0, dict.fromkeys(AXES, 0.0)
    changed_at = run.metrics.stat().st_mtime if run.metrics.exists() else None
    for line in metrics_of(run.metrics, CheckpointError):
        figures = {name: _curved(line.get(name, math.nan)) for name in FIGURES}
        if not newest["step"] < figures["step"]:
            num_bad += 1
            continue
        for axis in AXES:
            figures[axis] = figures[axis] if newest[axis] <= figures[axis] else math.nan
            newest[axis] = max(newest[axis], figures[axis])  # NaN is not greater
        for name, column in columns.items():
            column.append(figures[name])
    if num_bad:
        notes.append(f"{shown(run.metrics)}: the report leaves out {counted(num_bad, 'line')}, damaged or out of order")
    metrics = {name: np.array(column) for name, column in columns.items()}
    # version 0.1 logged the loss alone
    metrics["smoothed_loss"] = np.where(np.isnan(metrics["smoothed_loss"]), metrics["loss"], metrics["smoothed_loss"])
    return metrics, changed_at


def _curved(value: float) -> float:
    """Return `value` for a curve; NaN if it is so small that its inverse overflows when curves are scaled."""
    return float(value) if value == 0 or abs(value) > 1 / FIGURE else math.nan


def _header(run: RunFiles, notes: list[str]) -> Header | None:
    """Return the header of the latest readable checkpoint, else of the best one, else None; add errors to `notes`."""
    with suppress(OSError):  # of a closed directory, which the overview has noted
        for path in (*reversed(run.steps().values()), run.best):
            try:
                if path.exists():
                    return read_header(path)
            except GptError as error:
                notes.append(str(error))
    return None


def _facts(header: Header) -> tuple[dict[str, str], dict[str, str | int], tuple[int, ...]]:
    """Return the environment that wrote a checkpoint, facts about the training text, and the last steps of teachers."""
    environment, corpus, teachers = {"version": header.metadata["written_by"]}, dict[str, str | int](), ()
    with suppress(CheckpointError):
        progress = header.progress
        teachers = progress.teachers
        environment |= progress.environment
        facts = {key: getattr(progress, key) for key in ("num_training_tokens", "data_digest", "began_from")}
        corpus |= {key: fact for key, fact in facts.items() if fact is not None}
    if vocabulary := header.shapes.get("token_embedding.weight"):
        corpus["vocab_size"] = vocabulary[0]
    return environment, corpus, teachers
