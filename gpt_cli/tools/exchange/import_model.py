"""Write an imported model as a run, one weight at a time."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gpt_cli.checkpoints.checkpoint import Checkpoint, prepared
from gpt_cli.checkpoints.header import Progress
from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.common.files import Buffer, make_directory, remove, write_durably
from gpt_cli.common.host import Counting, Host
from gpt_cli.common.results import WIDTH, Result
from gpt_cli.common.safetensors_header import SIZES
from gpt_cli.errors import counted, visible
from gpt_cli.model import GPT
from gpt_cli.tools.exchange.import_hf import Foreign
from gpt_cli.tools.exchange.import_tensors import Weights
from gpt_cli.tools.exchange.request import ImportRequest


@dataclass(frozen=True)
class Imported(Result):
    """Result of `gpt import`: the new run, and the model's sizes; `steps` is empty for an import without --steps."""

    run: str
    parameters: int
    vocab_size: int
    context_length: int
    d_model: int
    num_heads: int
    num_blocks: int
    steps: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `gpt import --json` prints; `steps` is in it only after an import with --steps."""
        return {key: value for key, value in vars(self).items() if key != "steps" or value}

    def as_text(self, width: int = WIDTH) -> str:
        """Return a line with the run's path, parameters, sizes and steps."""
        blocks, heads = counted(self.num_blocks, "block"), counted(self.num_heads, "head")
        shape = f"{blocks} of {heads}, {self.vocab_size:,} tokens"
        text = f"{visible(self.run)}: {self.parameters:,} parameters, {shape}, context of {self.context_length:,}"
        return text + (f"; {counted(len(self.steps), 'step')} up to {self.steps[-1]:,}" if self.steps else "")


def adopt(request: ImportRequest, source: tuple[Path, Foreign, Mapping[int, Weights]], host: Host) -> Imported:
    """Write an imported model as a run and return its sizes; `source` is the result of `request.find`.

    Raises UsageError if the run already exists, EnvironmentFailure if it is being trained, and errors of `write_run`.
    """
    out, foreign, steps = source
    host.notices(foreign.notices)
    with sole_trainer(out, host.warn):
        request.require_free(RunDirectory(out))  # another import may have made the run since the check
        num_parameters = write_run(RunDirectory(out), foreign, host.counting, steps)
    sizes = foreign.config.model
    sizes = (sizes.context_length, sizes.d_model, sizes.num_heads, sizes.num_blocks)
    return Imported(str(out), num_parameters, foreign.tokenizer.vocab_size, *sizes, tuple(steps))


def write_run(run: RunDirectory, foreign: Foreign, counting: Counting, steps: Mapping[int, Weights]) -> int:
    """Write the weights of `foreign` as a run's best checkpoint, without optimizer state; return the parameter count.

    With `steps`, the run has a checkpoint for each step and no best checkpoint, since losses are unknown. An earlier
    run in the directory is replaced. `counting` shows the progress in bytes. Raises CheckpointError for weights that
    are not finite, EnvironmentFailure if a file cannot be written; any error leaves the earlier run or no run.
    """
    with torch.device("meta"):
        model = GPT(foreign.config.model, foreign.tokenizer.vocab_size)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    models = {run.step_file(step): (step, weights) for step, weights in steps.items()}
    models = models or {run.best: (0, foreign.weights)}
    num_bytes = max(
        sum(SIZES[weights.kind(name)] * shape.numel() for name, shape in shapes.items())
        for _, weights in models.values()
    )
    contents = dict[Path, Iterator[Buffer]]()
    with counting("importing", 2 * num_bytes * len(models), "B") as count:
        for path, (step, weights) in models.items():
            progress = replace(Progress.at_the_start(0, "", {}), step=step, observed_step=step)
            checkpoint = Checkpoint(foreign.config, foreign.tokenizer, progress, {}, {})
            stored = {name: (weights.kind(name), shape) for name, shape in shapes.items()}
            # reads all weights before any file of an earlier run is removed
            contents[path] = prepared(checkpoint, stored, partial(_contents, weights, shapes, count))
            weights.forget()
        make_directory(run.path)
        run.require_space(num_bytes * len(models))
        run.open_for(foreign.config)
        try:
            for path, (_, weights) in models.items():
                write_durably(path, contents[path])
                weights.forget()
        except BaseException:  # Ctrl-C too: some of the steps would look like all of them
            for path in run.files():
                remove(path)
            raise
    return sum(shape.numel() for shape in shapes.values())


def _contents(weights: Weights, names: Iterable[str], count: Callable[[int], object]) -> Iterator[Buffer]:
    for name in names:
        weight = weights.stored(name)
        yield weight.reshape(-1).view("uint8").data
        count(weight.nbytes)
