"""What a training reports to its caller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_cli.config import Config
from gpt_cli.errors import counted, inert, visible
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

    def __str__(self) -> str:
        sizes = f"{counted(self.costs.parameters, 'parameter')}, {counted(self.num_training_tokens, 'training token')}"
        return f"{visible(self.directory)}: {sizes}, {counted(self.steps_left, 'step')} to go"


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

    def __str__(self) -> str:
        return f"step {self.step:,}" + ("" if self.loss is None else f": loss {self.loss:.4f}")


@dataclass(frozen=True)
class Evaluated:
    """The validation loss was measured on `eval_tokens` tokens."""

    step: int
    score: Score
    best: bool

    def __str__(self) -> str:
        bits = f"{self.score.bits_per_byte:.4f} bits/byte"
        return f"step {self.step:,}: validation loss {self.score.loss:.4f} nats/token, {bits}"


@dataclass(frozen=True)
class Sampled:
    """The model continued the prompt of the run's samples."""

    step: int
    prompt: str
    text: str

    def __str__(self) -> str:
        lines = f"«{self.prompt}»{self.text}".splitlines()
        text = "\n".join(f"    {inert(line)}" for line in lines if line.strip())
        return f"step {self.step:,} sample:\n{text}"


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written; `asked` when a user asked for it."""

    step: int
    path: Path
    asked: bool

    def __str__(self) -> str:
        return f"step {self.step:,}: saved {visible(self.path)}"


@dataclass(frozen=True)
class Finished:
    """The end: the figures of `gpt train --json`, the signal that stopped it, and the step of the best weights.

    `signal` is None for a training that ended by itself, `best_step` for one that a signal stopped. `before` is None,
    or says of a run that was to go on why nothing was left to train; then this is its only report.
    """

    summary: dict[str, Any]
    signal: int | None
    best_step: int | None
    before: str | None = None

    def __str__(self) -> str:
        return f"{visible(self.summary['run'])}: {counted(self.summary['steps'], 'step')}{self.losses}"

    @property
    def losses(self) -> str:
        """The figures of the closing evaluation after a comma; nothing where there was none."""
        figures = self.summary
        if figures["validation_loss"] is None:
            return ""
        error = figures["validation_loss_error"]
        more_or_less = "" if error is None else f" ± {error:.4f}"
        return (
            f", validation loss {figures['validation_loss']:.4f}{more_or_less} nats/token "
            f"({counted(figures['validation_tokens'], 'token')}), {figures['bits_per_byte']:.4f} bits/byte "
            f"with the best weights, those of step {self.best_step}"
        )


Report = Prepared | Stepped | Evaluated | Sampled | Saved | Finished
