"""The figures in which a run ended, or that it has reached so far. Needs no torch."""

from __future__ import annotations

import math
from typing import Any

from gpt_cli.reporting.curves import curve
from gpt_cli.reporting.record import RunRecord

Figure = float | int | None


def final_figures(record: RunRecord) -> dict[str, Figure]:
    """What is known, None for the rest. Losses are in nats per token.

    `loss` is that of the last line, `best_validation_loss` the lowest of the evaluations while training, and
    `validation_loss` with `bits_per_byte` of the closing evaluation, or of the last one where there was none.
    """
    ended = record.outcome
    return {
        "steps": record.overview.steps,
        "tokens": _number(ended.get("tokens"), _last(record, "tokens")),
        "seconds": _number(ended.get("seconds"), _last(record, "seconds")),
        "loss": _last(record, "loss"),
        "best_validation_loss": record.overview.best_loss,
        "validation_loss": _number(ended.get("validation_loss"), _last(record, "validation_loss")),
        "bits_per_byte": _number(ended.get("bits_per_byte"), _last(record, "bits_per_byte")),
        "tokens_per_second": _number(ended.get("tokens_per_second"), _last(record, "tokens_per_second")),
        "parameters": record.overview.num_parameters,
    }


def _last(record: RunRecord, name: str) -> float | None:
    """The last finite figure of that name."""
    _, found = curve(record, name)
    return float(found[-1]) if len(found) else None


def _number(*candidates: Any) -> Figure:
    """The first that is a finite number."""
    return next((one for one in candidates if isinstance(one, int | float) and math.isfinite(one)), None)
