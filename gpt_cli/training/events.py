"""Events that a training yields to its caller."""

import contextlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from gpt_cli.common.host import tqdm_of_here
from gpt_cli.common.machine.devices import restored_threads
from gpt_cli.common.machine.torch_modes import default_modes
from gpt_cli.common.results import WIDTH, Figures
from gpt_cli.common.units import duration, with_error
from gpt_cli.config import Config
from gpt_cli.errors import UsageError, counted, inert, keywords_named, visible
from gpt_cli.evaluation.nll import Score
from gpt_cli.model.costs import CostEstimate
from gpt_cli.training.taught_targets import teaching_bytes


@dataclass(frozen=True)
class Prepared:
    """The event after all checks and before the first write, with the sizes and the estimated costs of the training."""

    directory: Path
    config: Config = field(repr=False)  # with device, dtype and compiling chosen
    step: int  # where it continues; 0 for a new run
    elapsed: float  # seconds of the earlier parts of the run
    costs: CostEstimate = field(repr=False)
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
    prompt: str  # which the tokenizer can encode, to try the model with
    began_from: str | None = None  # the model whose weights it began with, instead of random ones
    ends_early: bool = False  # whether gpt chose fewer steps than time allows, to avoid memorising
    reasons: tuple[str, ...] = ()  # of what gpt chose

    @property
    def memory_bytes(self) -> int:
        """The estimated memory of each process in bytes, including the targets that a teacher draws."""
        taught = teaching_bytes(self.vocab_size, self.num_training_tokens) if self.config.train.teacher_share else 0
        return self.costs.training_bytes + taught

    @property
    def disk_bytes(self) -> int:
        """The estimated bytes of the run directory at the end: checkpoints with optimizer state, and best weights."""
        settings, costs = self.config.train, self.costs
        num_saved = -(-(self.step + self.steps_left) // settings.save_every) + (self.began_from is not None)
        num_checkpoints = min(num_saved, settings.keep_checkpoints) + settings.num_teachers
        to_continue = costs.parameters + settings.stored_per_weight * costs.num_trained
        return 4 * (to_continue * num_checkpoints + costs.parameters)

    def __str__(self) -> str:
        sizes = f"{counted(self.costs.parameters, 'parameter')}, {counted(self.num_training_tokens, 'training token')}"
        return f"{visible(self.directory)}: {sizes}, {counted(self.steps_left, 'step')} to go"


@dataclass(frozen=True)
class Stepped:
    """The event after a step; `logged` is true if the step was written to metrics.jsonl."""

    step: int
    loss: float | None  # None, as the next three, while a GPU still computes it; never when logged
    learning_rate: float | None  # None where a checkpoint of an earlier version lacks it
    gradient_norm: float | None
    tokens_per_second: float | None
    logged: bool
    elapsed: float  # seconds of the run so far, evaluations, samples and saves included
    smoothed_loss: float | None = None  # the mean of the losses so far that `gpt train` shows, or None like `loss`
    model: int = 1  # which of the models that the run trains in turn

    def __str__(self) -> str:
        return f"step {self.step:,}" + ("" if self.loss is None else f": loss {self.loss:.4f}")


@dataclass(frozen=True)
class Evaluated:
    """The event after an evaluation on about `eval_tokens` tokens; `best` is true if the loss is the lowest so far.

    On an accelerator, a thread may still be writing the best weights.
    """

    step: int
    score: Score
    best: bool
    model: int = 1  # which of the models that the run trains in turn

    def __str__(self) -> str:
        bits = f"{self.score.bits_per_byte:.4f} bits/byte"
        return f"step {self.step:,}: validation loss {self.score.loss:.4f} nats/token, {bits}"


@dataclass(frozen=True)
class Sampled:
    """The event after a sample: `text` is the model's continuation of the run's sample prompt."""

    step: int
    prompt: str
    text: str

    def __str__(self) -> str:
        lines = f"«{self.prompt}»{self.text}".splitlines()
        text = "\n".join(f"    {inert(line)}" for line in lines if line.strip())
        return f"step {self.step:,} sample, after its prompt in « »:\n{text}"


@dataclass(frozen=True)
class Saved:
    """The event after a checkpoint was written; `requested` is true if a user asked for the checkpoint."""

    step: int
    path: Path
    requested: bool

    def __str__(self) -> str:
        return f"step {self.step:,}: saved {visible(self.path)}"


@dataclass(frozen=True)
class Finished(Figures):
    """The last event of a training: `summary`, which `gpt train --json` prints, and the step of the best weights.

    If a signal ended the training, `signal` is its number, and `best_step` is None. If a run to resume had nothing left
    to train, `before` is the reason, and Finished is the only event.
    """

    summary: dict[str, Any]
    signal: int | None
    best_step: int | None
    before: str | None = None
    _repr_keys = ("run", "steps", "loss", "validation_loss", "stopped_by")

    def as_dict(self) -> dict[str, Any]:
        return self.summary

    def as_text(self, width: int = WIDTH) -> str:
        steps = counted(self.summary["steps"], "step")
        return f"{visible(self.summary['run'])}: {steps} in {duration(self.summary['seconds'])}{self.losses}"

    def __str__(self) -> str:
        return f"{visible(self.summary['run'])}: {counted(self.summary['steps'], 'step')}{self.losses}"

    def as_picture(self, kind: str = "png") -> bytes | None:
        pictures = import_module("gpt_cli.tools.reports.curves_picture")  # not of the core
        return pictures.draw_losses(Path(self.summary["run"]), kind)

    @property
    def losses(self) -> str:
        """The text `, validation loss ...` with results of the closing evaluation; empty if a signal prevented that."""
        figures = self.summary
        if figures["validation_loss"] is None:
            return ""
        loss = with_error(figures["validation_loss"], figures["validation_loss_error"])
        return (
            f", validation loss {loss} nats/token ({counted(figures['validation_tokens'], 'token')}), "
            f"{figures['bits_per_byte']:.4f} bits/byte with the best weights, those of step {self.best_step:,}"
        )


TrainingEvent = Prepared | Stepped | Evaluated | Sampled | Saved | Finished


class Training(Generator[TrainingEvent, None, None]):
    """A generator of events that trains while the caller iterates over it; `finish` trains to the end."""

    def __init__(self, events: Generator[TrainingEvent, None, None]):
        self._events, self._last = events, None
        self._threads: int | None = None  # of this training, after its first event

    def __repr__(self) -> str:
        """Return the last event in angle brackets, or a sentence that nothing has run yet."""
        return f"<Training: {self._last or 'nothing has run yet; finish() trains to the end'}>"

    def send(self, value: None, /) -> TrainingEvent:
        """Train up to the next event and return it; next() does the same."""
        with keywords_named(), default_modes(), restored_threads(self._threads):
            self._last = self._events.send(value)
            self._threads = torch.get_num_threads()
        return self._last

    def throw(self, *error: Any) -> TrainingEvent:
        """Raise an error inside the training generator; `close` ends a training in this way."""
        with keywords_named(), default_modes(), restored_threads(self._threads):
            return self._events.throw(*error)

    def finish(self) -> Finished:
        """Train to the end and return the Finished event, even if an iteration has already yielded it.

        Raises UsageError if the training was closed or an error ended it.
        """
        for _ in self:
            pass
        if not isinstance(self._last, Finished):
            sentence = "this training was closed, or an error ended it, so it has no result"
            raise UsageError("finish", sentence, hint="resume=True continues it from its last checkpoint")
        return self._last


@contextlib.contextmanager
def drawing(start: Prepared) -> Iterator[Callable[[TrainingEvent], object]]:
    """Show a tqdm progress bar, in a notebook or a terminal; yield a function that updates the bar from each event."""
    name, best = visible(start.directory), ""
    total = start.step + start.steps_left  # by the clock, an estimate
    with tqdm_of_here()(desc=name, initial=start.step, total=total, unit=" steps", mininterval=1) as bar:

        def draw(event: TrainingEvent) -> None:
            nonlocal best
            if isinstance(event, Evaluated) and event.best:
                best = f", best validation {event.score.loss:.3f}"
            elif isinstance(event, Stepped):
                if event.smoothed_loss is not None:
                    bar.set_postfix_str(f"loss {event.smoothed_loss:.3f}{best}", refresh=False)
                bar.total = max(bar.total, event.step)
                bar.update(event.step - bar.n)

        yield draw
