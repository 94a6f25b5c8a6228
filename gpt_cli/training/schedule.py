"""The learning rate as a function of the step."""

from __future__ import annotations

from gpt_cli.config import TrainConfig


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate of a step (counted from 0): up linearly over warmup_steps, then down linearly to zero.

    The step after the last would have zero. Bergsma et al. 2025 (arXiv 2502.15938) for the decay to zero.
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    return config.learning_rate * (config.max_steps - step) / max(1, config.max_steps - config.warmup_steps)
