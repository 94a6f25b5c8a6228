"""What the rules choose settings for (Budget), what they return (Choice), and its reasons in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpt_cli.common.units import duration, quantity, size
from gpt_cli.config import Config
from gpt_cli.errors import counted
from gpt_cli.training.auto_config.text_statistics import TextFigures

DEFAULT_SECONDS = 300.0
LARGE_DECAY = 1.0  # the weight decay of two larger models (note 0066)
PATIENCE = 3  # evaluations without a better loss, after which more steps than are useful end


@dataclass(frozen=True)
class Budget:
    """The budget of a training: a number of `steps` or, if `steps` is None, of `seconds`.

    Rules count in steps of a small fixed model, REFERENCE. A budget is `steps` such steps, or `seconds` divided by
    `step_seconds`, the time of one on this machine. A budget in steps gives the same settings on all machines.
    """

    seconds: float = DEFAULT_SECONDS
    steps: int | None = None
    step_seconds: float = 1.0

    @property
    def reference_steps(self) -> float:
        """The budget as a number of steps of the small model REFERENCE."""
        return float(self.steps) if self.steps is not None else self.seconds / self.step_seconds


@dataclass(frozen=True)
class Choice:
    """A chosen config, the figures that it follows from, and its reasons, a line per group of settings."""

    config: Config
    num_steps: int  # about how many the time allows, or exactly those that were given or are useful
    vocab_size: int  # of the tokenizer, about
    seconds: float | None  # that the training may take, where no number of steps was given
    num_tokens: float  # of the text, to train on
    num_parameters: float  # in blocks and output layer
    possible_steps: int  # in the budget
    memory_limits: bool  # the size of the model
    memorises: bool  # the text, however the settings are
    reasons: tuple[str, ...] = ()


def reasons_of(
    choice: Choice, text: TextFigures, budget: Budget, fixed: Mapping[str, Any], why_tokenizer: str
) -> tuple[str, ...]:
    """Return a line each for text, budget, model, training and length of a choice; `fixed` has the user's settings."""
    model, train, steps = choice.config.model, choice.config.train, counted(choice.num_steps, "step")
    chosen = train.model_fields_set - fixed.get("train", {}).keys()
    epochs = choice.num_steps * choice.config.tokens_per_step / choice.num_tokens
    times = f"{epochs:,.0f}" if epochs >= 99.5 else f"{epochs:.2g}"
    models = _models(train.num_models, train.teacher_share) if train.teacher_share else "the text is read"
    dropout = "with" if fixed.get("model", {}).keys() & {"dropout", "ngram_embedding"} else "hence"
    dropout += f" dropout {model.dropout:g}" + f" and weight decay {LARGE_DECAY:g}" * ("weight_decay" in chosen)
    dropout += f" and n-grams of up to {model.ngram_embedding} tokens" if model.ngram_embedding else ""
    dropout += " for all models but the last" if train.teacher_share and train.num_models > 2 else ""
    length = f"about {steps} at that speed" if budget.steps is None else steps
    if choice.num_steps < choice.possible_steps:
        why_fewer = f" instead of about {choice.possible_steps:,}, which would probably memorise the text"
        of_short_text = ", which memorise so short a text; more text makes a better model"
        length = steps + (of_short_text if choice.memorises else why_fewer)
    if "patience" in chosen:
        length += f", or fewer: {PATIENCE} evaluations in a row without a better loss end it"
    return (
        f"text      {size(text.num_bytes)}, {text.bytes_per_character:.2f} bytes per character, "
        f"{text.num_distinct:,} different characters: {why_tokenizer}",
        _why_budget(budget),
        f"model     {model.d_model} wide, {counted(model.num_blocks, 'block')}, context {model.context_length}: "
        f"{quantity(round(choice.num_parameters))} parameters in blocks and output layer, "
        f"for about {quantity(round(choice.num_tokens))} tokens of text"
        + (", as large as there is memory for" if choice.memory_limits else ""),
        f"training  {train.optimizer}, {choice.config.tokens_per_step:,} tokens a step; {models} "
        f"about {times} time{'' if times == '1' else 's'}, {dropout}",
        f"length    {length}",
    )


def _models(number: int, share: float) -> str:
    first = f"models, the first of which trains for {share:.0%} of the run"
    if number == 2:
        return f"2 {first} and teaches the second, read the text"
    if number == 3:
        return f"3 {first} and teaches the second, which teaches the last, read the text"
    return f"{number} {first} and teaches the next {number - 2}, which teach the last, read the text"


def _why_budget(budget: Budget) -> str:
    if budget.steps is not None:
        return f"budget    {counted(budget.steps, 'step')}, as requested; the speed of this machine does not matter"
    steps = f"{two_digits(budget.reference_steps):,} steps"
    return f"budget    {duration(budget.seconds)}, on this machine enough for about {steps} of the config tiny"


def two_digits(number: float) -> int:
    """Round to two significant digits, so that small differences of text or machine do not change the result."""
    return int(float(f"{number:.2g}"))
