"""What is compared of runs: their curves, the figures in which they ended, and the settings. Needs no torch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpt_cli.checkpoints.list import Result, have_one_tokenizer
from gpt_cli.config.reading import written
from gpt_cli.config.sweep_points import SEED
from gpt_cli.reporting.record import RunRecord

Figure = float | int | None

QUANTITIES = (
    "loss",  # of training, in nats per token, as the next two
    "smoothed_loss",
    "validation_loss",
    "bits_per_byte",  # of the validation text
    "learning_rate",
    "gradient_norm",  # of the whole gradient
    "tokens_per_second",  # of training steps alone
)
AXES = ("step", "tokens", "seconds")  # seconds of training steps


def curve(record: RunRecord, quantity: str, axis: str = "step") -> tuple[np.ndarray, np.ndarray]:
    """The points of one of QUANTITIES against one of AXES: x and y, both float64, the numbers of metrics.jsonl.

    A line that lacks one of the two, or where one is not finite, has no point.
    """
    x, y = record.metrics[axis], record.metrics[quantity]
    there = np.isfinite(x) & np.isfinite(y)
    return x[there], y[there]


def evaluated_tokens(records: Sequence[RunRecord]) -> int | None:
    """How many tokens each evaluation of the curves read; None where that is the whole text, or differs among runs."""
    read = {tuple(curve(record, "validation_tokens")[1][-1:]) for record in records}
    whole = {(record.outcome.get("validation_tokens"),) for record in records}
    return int(*read.pop()) if len(read) == 1 and read not in ({()}, whole) else None


def of_tokens(records: Sequence[RunRecord]) -> str:
    """The same as an end of a title, empty for None."""
    return "" if (number := evaluated_tokens(records)) is None else f" (of {number:,} tokens)"


def final_figures(record: RunRecord) -> dict[str, Figure]:
    """What is known, None for the rest. Losses are in nats per token.

    `loss` is that of the last line, `best_validation_loss` the lowest of the evaluations while training, and
    `validation_loss` with `bits_per_byte` of the closing evaluation, or of the last one where there was none.
    `validation_loss_error` is the standard error of a closing loss. `tokens_per_second` is that of the whole training,
    and of one that has not ended the median of its lines.
    """
    ended, speeds = record.outcome, curve(record, "tokens_per_second")[1]
    tokens = _number(ended.get("tokens"), _last(record, "tokens"))
    return {
        "steps": record.overview.steps,
        "tokens": None if tokens is None else int(tokens),
        "seconds": _number(ended.get("seconds"), _last(record, "seconds")),
        "loss": _last(record, "loss"),
        "smoothed_loss": _last(record, "smoothed_loss"),
        "best_validation_loss": record.overview.best_loss,
        "validation_loss": _number(ended.get("validation_loss"), _last(record, "validation_loss")),
        "validation_loss_error": _number(ended.get("validation_loss_error")),
        "bits_per_byte": _number(ended.get("bits_per_byte"), _last(record, "bits_per_byte")),
        "tokens_per_second": _number(ended.get("tokens_per_second"), float(np.median(speeds)) if len(speeds) else None),
        "parameters": record.overview.num_parameters,
    }


def result(record: RunRecord) -> Result | None:
    """What a run is compared by; of one whose checkpoints cannot be read, the lowest evaluation of its metrics."""
    losses = record.metrics["validation_loss"]
    if record.overview.result is not None or not np.isfinite(losses).any():
        return record.overview.result
    place = int(np.nanargmin(losses))
    bits = float(record.metrics["bits_per_byte"][place])
    return Result(float(losses[place]), None, bits if math.isfinite(bits) else None, closed=False)


def by_token(records: Sequence[RunRecord]) -> bool:
    """Whether losses per token of these runs can be compared; if not, bits per byte can."""
    return have_one_tokenizer(record.overview for record in records)


def _last(record: RunRecord, name: str) -> float | None:
    """The last finite figure of that name."""
    _, found = curve(record, name)
    return float(found[-1]) if len(found) else None


def _number(*candidates: Any) -> Figure:
    """The first that is a finite number."""
    return next((one for one in candidates if isinstance(one, int | float) and math.isfinite(one)), None)


class Mean(NamedTuple):
    """The closing losses of runs that differ in their seed alone: their mean, and its standard error over seeds."""

    settings: Mapping[str, str]  # in which these runs differ from others
    num_runs: int  # with a closing loss
    mean: float | None  # nats per token or bits per byte; None without such a run
    error: float | None  # None for fewer than two runs


def means(runs: Sequence[tuple[Mapping[str, str], Result | None]], *, by_token: bool) -> list[Mean]:
    """The means of runs with the same settings, in which the seed does not count, the lowest first."""
    groups: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for settings, compared in runs:
        found = groups.setdefault(tuple(item for item in settings.items() if item[0] != SEED), [])
        loss = compared and (compared.loss if by_token else compared.bits_per_byte)
        if compared is not None and compared.closed and loss is not None:
            found.append(loss)
    every = [
        Mean(
            settings=dict(key),
            num_runs=len(losses),
            mean=statistics.fmean(losses) if losses else None,
            error=statistics.stdev(losses) / math.sqrt(len(losses)) if len(losses) > 1 else None,
        )
        for key, losses in groups.items()
    ]
    return sorted(every, key=lambda one: math.inf if one.mean is None else one.mean)


def means_of_records(records: Sequence[RunRecord]) -> list[Mean]:
    """The means of runs with different seeds; empty where no two runs differ in their seed alone."""
    differing = {row.name: row.values for row in differing_settings(records)}
    settings = [{name: values[number] or "" for name, values in differing.items()} for number in range(len(records))]
    found = means([*zip(settings, map(result, records), strict=True)], by_token=by_token(records))
    return found if SEED in differing and len(found) < len(records) else []


class Row(NamedTuple):
    """A name, and for each run its value as text; None where the run does not say."""

    name: str
    values: tuple[str | None, ...]

    @property
    def differs(self) -> bool:
        """Whether two runs say something else; silence is no other value."""
        return len({value for value in self.values if value is not None}) > 1


def settings(records: Sequence[RunRecord]) -> list[Row]:
    """A row for each setting, `section.key`, with the values as a config file writes them."""
    return rows([record.config for record in records])


def differing_settings(records: Sequence[RunRecord]) -> list[Row]:
    """The settings in which runs differ; of one run none."""
    return [row for row in settings(records) if row.differs]


def rows(contents: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A row for each name that one of the contents has, in their order."""
    names = dict.fromkeys(name for content in contents for name in content)
    return [
        Row(name, tuple(written(content[name]) if name in content else None for content in contents)) for name in names
    ]
