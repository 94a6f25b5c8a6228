"""What a training reports to its caller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_cli.config import Config
from gpt_cli.model.costs import Estimate
from gpt_cli.sampling.scoring import Score


@dataclass(frozen=True)
class Prepared:
    """Everything is checked and read, nothing is written yet: what will be trained, and what it will take."""

    directory: Path
    config: Config  # with device, dtype and compiling chosen
    step: int  # where it continues; 0 for a new run
    elapsed: float  # seconds of the earlier parts of the run
    costs: Estimate
    num_processes: int
    num_documents: int
    num_characters: int
    num_training_tokens: int
    num_validation_tokens: int
    vocab_size: int
    steps_left: int  # by the clock, an estimate
    epochs_left: float
    seconds_left: float  # an estimate that includes the closing evaluation
    closing_seconds: float  # of the closing evaluation alone
    prompt: str  # one that the tokenizer takes, to try the model with
    began_from: str | None = None  # the model whose weights it began with, instead of random ones


@dataclass(frozen=True)
class Stepped:
    """A step is done; `logged` when it was written to metrics.jsonl."""

    step: int
    loss: float | None  # None, as the next three, while a GPU still computes it; never when logged
    learning_rate: float | None  # None where a checkpoint of an earlier version lacks it
    gradient_norm: float | None
    tokens_per_second: float | None
    logged: bool
    elapsed: float  # seconds of the run so far, evaluations, samples and saves included
    smoothed_loss: float | None = None  # the mean of the losses so far that `gpt train` shows; None as they are


@dataclass(frozen=True)
class Evaluated:
    """The validation loss was measured on `eval_tokens` tokens."""

    step: int
    score: Score
    best: bool


@dataclass(frozen=True)
class Sampled:
    """The model continued the beginning of the validation text."""

    step: int
    prompt: str
    text: str


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written; `asked` when a user asked for it."""

    step: int
    path: Path
    asked: bool


@dataclass(frozen=True)
class Finished:
    """The end: the figures of `gpt train --json`, the signal that stopped it, and the step of the best weights.

    `signal` is None for a training that ended by itself, `best_step` for one that a signal stopped.
    """

    summary: dict[str, Any]
    signal: int | None
    best_step: int | None


Report = Prepared | Stepped | Evaluated | Sampled | Saved | Finished
