"""The models of a run at the steps of its training: its checkpoints, one in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpt_cli.callbacks import Host
from gpt_cli.checkpoints.load import Loaded, load
from gpt_cli.checkpoints.run_files import run_of_checkpoint
from gpt_cli.errors import CheckpointError, shown, visible
from gpt_cli.inspecting.watched import step_files


def each_checkpoint(checkpoint: Path, host: Host) -> Iterator[Loaded]:
    """Yields the models of all steps of the run that a checkpoint lies in, oldest first; a bar counts them.

    Raises CheckpointError for a checkpoint that lies in no run, or is damaged.
    """
    run = run_of_checkpoint(checkpoint)
    if run is None:
        raise CheckpointError(shown(checkpoint), "this checkpoint lies in no run, so there are no other steps")
    paths = step_files(run)
    with host.counting("reading checkpoints", len(paths), "checkpoints") as count:
        for path in paths:
            yield load(path, None, host.warn)
            count(1)


def require_like(loaded: Loaded, newest: Loaded) -> None:
    """Raises CheckpointError for a step with another tokenizer, or other numbers of blocks, heads or tokens read."""
    if loaded.header.metadata["tokenizer"] != newest.header.metadata["tokenizer"]:
        sentence = f"its tokenizer is not that of {visible(newest.path)}, so its layers read other tokens"
        raise CheckpointError(shown(loaded.path), sentence)
    one, other = loaded.config.model, newest.config.model
    if any(getattr(one, key) != getattr(other, key) for key in ("num_blocks", "num_heads", "context_length")):
        raise CheckpointError(shown(loaded.path), f"it is a model of another shape than {shown(newest.path)}")
