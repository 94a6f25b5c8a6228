"""Makes a run of a model of transformers, one weight at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from gpt_cli.callbacks import Counting, Host
from gpt_cli.checkpoints.checkpoint import Checkpoint, prepared
from gpt_cli.checkpoints.header import Progress
from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.errors import visible
from gpt_cli.exchange.foreign import Foreign
from gpt_cli.files import Buffer, make_directory, write_durably
from gpt_cli.model import GPT
from gpt_cli.results import WIDTH, Result
from gpt_cli.safetensors_header import SIZES


@dataclass(frozen=True)
class Imported(Result):
    """A run made of a model of transformers, and the sizes of that model."""

    run: str
    parameters: int
    vocab_size: int
    context_length: int
    d_model: int
    num_heads: int
    num_blocks: int

    def as_text(self, width: int = WIDTH) -> str:
        """One line."""
        shape = f"{self.num_blocks} blocks of {self.num_heads} heads, {self.vocab_size:,} tokens"
        return f"{visible(self.run)}: {self.parameters:,} parameters, {shape}, context of {self.context_length:,}"


def adopt(out: Path, foreign: Foreign, host: Host) -> Imported:
    """Make the run; raises errors as `write_run` does, and EnvironmentFailure where another process trains it."""
    for notice in foreign.notices:
        host.notice(notice)
    with sole_trainer(out, host.warn):
        num_parameters = write_run(RunDirectory(out), foreign, host.counting)
    sizes = foreign.config.model
    sizes = (sizes.context_length, sizes.d_model, sizes.num_heads, sizes.num_blocks)
    return Imported(str(out), num_parameters, foreign.tokenizer.vocab_size, *sizes)


def write_run(run: RunDirectory, foreign: Foreign, counting: Counting) -> int:
    """Write a run that has these weights as its best, and nothing to continue; returns the number of parameters.

    What the directory held of an earlier run is replaced. Raises CheckpointError for weights that are not finite,
    EnvironmentFailure when the system refuses.
    """
    with torch.device("meta"):
        model = GPT(foreign.config.model, foreign.tokenizer.vocab_size)
    weights = foreign.weights
    stored = {name: (weights.kind(name), tensor.shape) for name, tensor in model.state_dict().items()}
    progress = Progress.at_the_start(0, "", {})
    checkpoint = Checkpoint(foreign.config, foreign.tokenizer, progress, {}, {})
    num_bytes = sum(SIZES[kind] * shape.numel() for kind, shape in stored.values())
    with counting("importing", 2 * num_bytes, "B") as count:

        def made() -> Iterator[Buffer]:
            for name in stored:
                weight = weights.stored(name)
                yield weight.reshape(-1).view("uint8").data
                count(weight.nbytes)

        content = prepared(checkpoint, stored, made)  # reads all, before anything of an earlier run is removed
        make_directory(run.path)
        run.require_space(num_bytes, 0, 1)
        run.open_for(foreign.config)
        write_durably(run.best, content)
    return sum(shape.numel() for _, shape in stored.values())
