"""Records of runs that no training has made, for tests of their curves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpt_cli.checkpoints.metrics_files import smoothed
from gpt_cli.checkpoints.run_list import Overview
from gpt_cli.tools.reports.run_record import FIGURES, RunRecord


def record(name: str = "one", losses: tuple[float, ...] = (4.0, 3.0, 2.0), state: str = "finished") -> RunRecord:
    """One that logged these losses at steps 1, 2, 3 and so on, and evaluated at each, 1 higher."""
    steps = np.arange(1.0, len(losses) + 1)
    loss = np.array(losses)
    known = {"step": steps, "tokens": 100 * steps, "seconds": 60 * steps, "loss": loss, "validation_loss": loss + 1}
    means: list[float] = []
    for step, one in enumerate(losses, 1):
        means.append(smoothed(means[-1] if means else None, one, step))
    other = {
        "validation_tokens": np.full(len(losses), np.nan),
        "bits_per_byte": loss / 2,
        "learning_rate": 0.001 * steps,
        "gradient_norm": loss,
        "smoothed_loss": np.array(means),
        "tokens_per_second": steps,
    }
    metrics = {figure: (known | other)[figure] for figure in FIGURES}
    return RunRecord(
        overview=Overview(Path("runs") / name, state, steps=len(losses)),
        name=name,
        metrics=metrics,
        samples=(),
        environment={},
        corpus={},
        teachers=(),
        differs=None,
        last_line_at=None,
        notes=(),
    )


def changed(record: RunRecord, **sections: dict[str, Any]) -> RunRecord:
    """The same run with other settings, such as train={"seed": 5}."""
    config = record.overview.config
    assert config is not None
    return replace(record, overview=replace(record.overview, config=config.changed(**sections)))
