"""The models of a run at the steps of its training: its checkpoints, one in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpt_cli.callbacks import Host
from gpt_cli.checkpoints.load import Loaded, load
from gpt_cli.checkpoints.run_files import run_of_checkpoint
from gpt_cli.errors import CheckpointError, shown
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
