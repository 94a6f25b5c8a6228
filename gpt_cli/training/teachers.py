"""Train two models in one run; the first model becomes the teacher of the second.

Furlanello et al. 2018, "Born-Again Neural Networks", arXiv 1805.04770: the second model has the same size, begins with
other random weights, and learns from the text and from the predictions of the first model. Here some targets are drawn
from the teacher's probabilities, and some from n-gram counts of the text (`TaughtTargets`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from gpt_cli.checkpoints.header import Progress
from gpt_cli.common.host import Host, both
from gpt_cli.common.machine.devices import autocast
from gpt_cli.common.rng import random_words, stream_key
from gpt_cli.config import TrainConfig
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.model import GPT
from gpt_cli.model.gpt import without_dropout
from gpt_cli.text.token_files import windows
from gpt_cli.training.batches import Batches
from gpt_cli.training.state import TrainingState
from gpt_cli.training.validation import evaluation_batch_size

DRAWS = 32  # of a teacher for each position


def model_ends(progress: Progress, settings: TrainConfig) -> bool:
    """Return whether the first model has used its share of steps or time, so that the second model begins."""
    share, steps, seconds = settings.teacher_share, settings.max_steps, settings.max_time
    if share is None or progress.teachers or progress.step == 0:
        return False
    return (steps is not None and progress.step >= steps * share) or (
        seconds is not None and seconds * share <= progress.elapsed < seconds
    )


def settings_of_model(progress: Progress, settings: TrainConfig) -> TrainConfig:
    """Return the settings with max_steps and max_time reduced to the current model's part of the run."""
    if settings.teacher_share is None:
        return settings
    share = 1.0 if progress.teachers else settings.teacher_share
    steps, seconds = settings.max_steps, settings.max_time
    return settings.model_copy(
        update={
            "max_steps": None if steps is None else max(1, math.ceil(steps * share) - progress.model_step),
            "max_time": None if seconds is None else seconds * share - progress.model_elapsed,
        }
    )


def teach(
    state: TrainingState, teacher: GPT, step: int, host: Host, watch: Callable[[], object] = lambda: None
) -> None:
    """Draw targets from `teacher`, the model after step `step`; later steps of the training use some of these targets.

    `watch` is called between batches. Raises EnvironmentFailure if ranks draw different targets.
    """
    assert isinstance(state.batches, Batches)
    taught = state.batches.taught_targets
    assert taught is not None
    drawing = host.counting("drawing the targets of the teacher", len(taught.ids), "tokens")
    with drawing as count, without_dropout(teacher):
        targets = drawn_targets(teacher, taught.ids, state.config.train, step, both(count, watch))
    if state.ranks.any_differ(int(targets.sum())):
        sentence = "the processes draw different targets from the same model, which means a fault of this machine"
        raise EnvironmentFailure(f"step {step:,}", sentence)
    taught.draws = targets


def drawn_targets(
    model: GPT, ids: np.ndarray, settings: TrainConfig, step: int, count: Callable[[int], object] = lambda _: None
) -> np.ndarray:
    """Draw DRAWS targets for each position from a model's probabilities: ids [N] -> [N, DRAWS]; `step` seeds the draws.

    The first position has no targets. Each position is predicted from at least half a context, if so many tokens
    precede it. `count` receives the number of tokens done since its last call.
    """
    C, V = model.config.context_length, model.vocab_size
    device, number = model.token_embedding.weight.device, len(ids) - 1
    length, new = min(C, number), max(1, C // 2)
    draws = np.zeros((len(ids), DRAWS), np.uint16 if V <= 2**16 else np.int32)
    starts = np.array([*range(0, number - length, new), number - length])
    key, at_once = stream_key(settings.seed, "teacher", step), evaluation_batch_size(C, V, device)
    for first in range(0, len(starts), at_once):
        chosen = starts[first : first + at_once]
        batch = torch.from_numpy(windows(ids, chosen, length).astype(np.int64)).to(device)
        numbers = random_words(stream_key(key, first), 0, len(chosen) * length * DRAWS) / 2.0**32
        uniform = torch.from_numpy(numbers.astype(np.float32)).to(device).view(len(chosen), length, DRAWS)
        with torch.inference_mode(), autocast(device, settings.dtype):
            cumulative = torch.softmax(model(batch).float(), dim=-1).cumsum(dim=-1)
        drawn = torch.searchsorted(cumulative, uniform * cumulative[..., -1:]).clamp(max=V - 1).cpu().numpy()
        for start, row in zip(chosen.tolist(), drawn, strict=True):
            skipped = 0 if start == 0 else length - new
            draws[start + 1 + skipped : start + 1 + length] = row[skipped:]
        count(new * len(chosen))
    return draws
