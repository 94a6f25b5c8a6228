"""Makes a run of a model of transformers, one weight at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from gpt_cli.callbacks import Counting
from gpt_cli.checkpoints.checkpoint import Checkpoint, save_made
from gpt_cli.checkpoints.progress import Progress
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.exchange.gpt2 import Foreign
from gpt_cli.files import Buffer
from gpt_cli.model import GPT


def write_run(run: RunDirectory, foreign: Foreign, counting: Counting) -> int:
    """Write a run that has these weights as its best, and nothing to continue; returns the number of parameters.

    What the directory held of an earlier run is replaced. Raises CheckpointError for weights that are not finite,
    EnvironmentFailure when the system refuses.
    """
    with torch.device("meta"):
        model = GPT(foreign.config.model, foreign.tokenizer.vocab_size)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    progress = Progress.at_the_start(0, "", {})
    checkpoint = Checkpoint(foreign.config, foreign.tokenizer, progress, {}, {})
    num_bytes = 4 * sum(shape.numel() for shape in shapes.values())
    foreign.weights.require_finite()  # before anything of an earlier run is removed
    run.open_for(foreign.config)
    run.require_space(0, num_bytes, 0)
    with counting("importing", 2 * num_bytes, "B") as count:
        save_made(run.best, checkpoint, shapes, partial(_made, foreign, list(shapes), count))
    return num_bytes // 4


def _made(foreign: Foreign, names: list[str], count: Callable[[int], object]) -> Iterator[Buffer]:
    """The weights, in the order of names."""
    for name in names:
        weight = foreign.weights[name]
        yield weight.reshape(-1).view("uint8").data
        count(weight.nbytes)
