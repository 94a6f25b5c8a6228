"""Learning-rate schedules, by step or by elapsed time."""

import math

from gpt_cli.config import TrainConfig

_STABLE = 0.5  # share of the run after which the rate of a stable schedule falls


def warmup_steps(config: TrainConfig) -> int:
    """Return how many steps the warm-up takes: `config.warmup_steps`, but at most half of max_steps if that is set."""
    return config.warmup_steps if config.max_steps is None else min(config.warmup_steps, config.max_steps // 2)


def lr_multiplier(step: int, config: TrainConfig, elapsed: float = 0.0) -> float:
    """Return the learning-rate multiplier (0 to 1) of a step, counted from 0, that begins after `elapsed` seconds.

    The multiplier rises over the warm-up, then falls to zero: linearly (Bergsma et al. 2025, arXiv 2502.15938), as half
    a cosine (Loshchilov and Hutter 2017, eq. 5), or linearly in the second half of the steps after the warm-up (stable;
    Hu et al. 2024, section 4). With max_time, the multiplier falls with the part of max_time that has passed, and the
    warm-up ends by half of max_time. With max_steps too, the limit that is closer decides at each step.
    """
    rising = warmup_steps(config)
    risen, falling = (step + 1) / rising if rising else 1.0, 1.0  # the share of the run after its warm-up
    left = 1.0
    if config.max_steps is not None:
        falling = 1 - rising / config.max_steps
        left = (config.max_steps - step) / (config.max_steps - rising)
    if config.max_time is not None:
        passed = elapsed / config.max_time
        risen = max(risen, 2 * passed)
        left = min(left, (1 - passed) / falling)
    left = min(1.0, max(0.0, left))
    if config.schedule == "cosine":
        left = (1 - math.cos(math.pi * left)) / 2
    elif config.schedule == "stable":
        left = min(1.0, left / _STABLE)
    return min(risen, left)
