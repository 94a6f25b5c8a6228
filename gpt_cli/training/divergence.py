"""Complete the errors of a training with its intact checkpoint, and flags to try."""

from __future__ import annotations

from gpt_cli.config import Config
from gpt_cli.errors import DivergedError, EnvironmentFailure
from gpt_cli.training.advice.rates import one_digit, rate_of
from gpt_cli.training.run import Run
from gpt_cli.training.step import Diverged


def diverged_error(diverged: Diverged, hint: str, intact: str = "") -> DivergedError:
    """Return the error of a loss or gradient that is not finite; `intact` is a clause on the intact checkpoint."""
    if diverged.loss is None:
        sentence = f"{diverged.what} are not finite"
    elif diverged.gradient_norm is None:
        sentence = f"the validation loss is {diverged.loss:g}"
    else:
        sentence = (
            f"the loss is {diverged.loss:g} and the gradient norm is {diverged.gradient_norm:g} "
            f"at learning rate {diverged.learning_rate:g}"
        )
    sentence += f"; {intact}" if intact else ""
    return DivergedError(f"step {diverged.step:,}", sentence, hint=hint)


def lower_rates(config: Config) -> str:
    """Return flags of lower learning rates, which may keep a training from diverging: the usual ones, or thirds."""
    rate, flags = rate_of(config), list[str]()
    if rate.key != "learning_rate":  # AdamW moves what Muon does not
        flags.append(f"‹train.learning_rate={one_digit(config.train.learning_rate / 3):g}›")
    return " ".join([*flags, rate.lower])


def what_is_intact(run: Run) -> str:
    """Return a clause that names the checkpoint that a failed training leaves."""
    if run.saved is None:
        return "nothing was saved yet"
    if not run.directory.step_file(run.saved.step).exists():
        return f"the checkpoint of step {run.saved.step:,} is gone with its directory"
    return f"the checkpoint of step {run.saved.step:,} is intact"


def add_what_is_intact(error: EnvironmentFailure, run: Run) -> None:
    """Add the intact checkpoint to an error, and the command that continues from it."""
    error.sentence += f"; {what_is_intact(run)}"
    first = error.hint if run.directory.checkpoints.is_dir() else "put the directory back"
    error.hint = "; then ".join(filter(None, [first, f"continue with {run.directory.resume_command}"]))
