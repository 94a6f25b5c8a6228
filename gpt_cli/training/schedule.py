"""The learning rate as a function of the step."""

from __future__ import annotations

from gpt_cli.config import TrainConfig


def warmup_steps(config: TrainConfig) -> int:
    """The warm-up, at most half of the run."""
    return min(config.warmup_steps, config.max_steps // 2)


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate of a step (counted from 0): up linearly over the warm-up, then down linearly to zero.

    The step after the last would have zero. Bergsma et al. 2025 (arXiv 2502.15938) for the decay to zero.
    """
    rising = warmup_steps(config)
    if step < rising:
        return config.learning_rate * (step + 1) / rising
    return config.learning_rate * (config.max_steps - step) / (config.max_steps - rising)
