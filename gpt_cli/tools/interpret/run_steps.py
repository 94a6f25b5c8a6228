"""Steps of a run that `--over-training` shows: its snapshots, or its checkpoints. Needs no torch."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.checkpoints.select import find_header
from gpt_cli.common.host import Host
from gpt_cli.errors import CheckpointError, shown
from gpt_cli.sampling.prompts import read_prompt


class Watched(NamedTuple):
    """A run, and what its checkpoints read; None: the snapshots that it has kept are meant."""

    run: RunFiles
    prompt: str | None = None
    source: str = "‹prompt›"  # the field of the prompt, or stdin


def find_watched(run: Path | None, prompt: str | None, file: Path | None, host: Host) -> Watched:
    """Find the run, and read the prompt that --prompt or --prompt-file give."""
    header = find_header(run, None, host)
    run_files = RunFiles(header.path.parent.parent)
    if prompt is None and file is None:
        return Watched(run_files)
    return Watched(run_files, *read_prompt(prompt, file, header, host.stdin))


def step_files(run: RunFiles) -> list[Path]:
    """List the checkpoints of a run by step; raises CheckpointError where there is none."""
    if not (paths := [*run.steps().values()]):
        sentence = "this run has no checkpoints of steps, from which anything could be computed by step"
        raise CheckpointError(shown(run.path), sentence, hint="gpt import DIR... --steps makes such a run")
    return paths
