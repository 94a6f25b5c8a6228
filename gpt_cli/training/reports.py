"""What a training tells whoever runs it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_cli.training.evaluation import Evaluation


@dataclass(frozen=True)
class Stepped:
    """A step is done; `logged` when it was written to metrics.jsonl."""

    step: int
    loss: float | None  # None, as all below, where a GPU still computes it; never when logged
    learning_rate: float | None  # None where a checkpoint of an earlier version does not tell
    gradient_norm: float | None
    tokens_per_second: float | None
    logged: bool


@dataclass(frozen=True)
class Evaluated:
    """The validation loss was measured on `eval_tokens` tokens."""

    step: int
    evaluation: Evaluation
    best: bool


@dataclass(frozen=True)
class Sampled:
    """The model continued the beginning of the validation text."""

    step: int
    prompt: str
    text: str


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written; `asked` when a user wished it."""

    step: int
    path: Path
    asked: bool


@dataclass(frozen=True)
class Finished:
    """The end, with the figures of `gpt train --json`; `signal` is the number of the one that stopped it."""

    summary: dict[str, Any]
    signal: int | None


Report = Stepped | Evaluated | Sampled | Saved | Finished
