"""Whether this machine has the memory and the disk that a training needs."""

from __future__ import annotations

from gpt_cli.config import Config
from gpt_cli.errors import EnvironmentFailure, counted
from gpt_cli.model.costs import estimate
from gpt_cli.training.run import Run


def require_memory(config: Config, free: int | None) -> None:
    """Raise EnvironmentFailure where main memory surely cannot hold a training, whatever the vocabulary.

    `free` is in bytes, None where it is unknown. A GPU refuses by itself.
    """
    settings = config.train
    if settings.device != "cpu" or free is None:
        return

    def needs(num_sequences: int) -> int:
        costs = estimate(config.model, 1, micro_batch_size=num_sequences, dtype=settings.dtype)
        return costs.training_bytes * 4 // 5  # the estimate is a tenth above what was measured

    at_once = settings.sequences_at_once
    if (needed := needs(at_once)) <= free:
        return
    fitting = [n for n in range(1, at_once) if settings.batch_size % n == 0 and needs(n) <= free]
    fits = f"--set train.micro_batch_size={fitting[-1]}" if fitting else ""
    raise EnvironmentFailure(
        "memory",
        f"the model and {counted(at_once, 'sequence')} of its batch take at least {needed / 1e6:,.0f} MB, "
        f"and {free / 1e6:,.0f} MB are free",
        hint=fits or "lower model.d_model, model.num_blocks or model.context_length",
    )


def require_space(run: Run) -> None:
    """Raise EnvironmentFailure where the disk cannot hold the checkpoints of a run."""
    settings = run.config.train
    weights = 4 * run.state.num_parameters
    num_kept = len(run.directory.steps()) if run.progress.step else 0
    at_once = settings.keep_checkpoints + 1  # the new one is written before the oldest is removed
    if settings.max_time is None:
        num_saves = -(-(settings.max_steps - run.progress.step) // settings.save_every)
        at_once = min(num_kept + num_saves, at_once)
    run.directory.require_space(3 * weights, weights, at_once)
