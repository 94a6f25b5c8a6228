"""Which steps of a run `--over-training` shows: those that it has kept, or those of its checkpoints. Needs no torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpt_cli.callbacks import Host
from gpt_cli.checkpoints.find import find_header
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.errors import CheckpointError, shown
from gpt_cli.machine.sharing import sharing
from gpt_cli.sampling.prompts import prompt_source, read_prompt

if TYPE_CHECKING:
    from gpt_cli.inspecting.snapshots import Steps


class Watched(NamedTuple):
    """A run, and what its checkpoints read; None: the snapshots that it has kept are meant."""

    run: RunFiles
    prompt: str | None = None
    source: str = "--prompt"  # the flag of the prompt, or stdin


def find_watched(run: Path | None, prompt: str | None, file: Path | None, host: Host) -> Watched:
    """The run that is meant, with the prompt that --prompt or --prompt-file give."""
    header = find_header(run, None, host)
    found = RunFiles(header.path.parent.parent)
    if prompt is None and file is None:
        return Watched(found)
    return Watched(found, read_prompt(prompt, file, header, host.stdin), prompt_source(prompt, file))


def step_files(run: RunFiles) -> list[Path]:
    """The checkpoints of a run by step; raises CheckpointError where there is none."""
    if not (paths := [*run.steps().values()]):
        sentence = "this run has no checkpoints of steps, from which its attention could be computed"
        raise CheckpointError(shown(run.path), sentence, hint="gpt import DIR... --steps makes such a run")
    return paths


@contextlib.contextmanager
def steps_of(watched: Watched, host: Host) -> Iterator[Steps]:
    """The steps of a run; raises errors as `kept_steps` and `computed_steps` do."""
    if watched.prompt is None:
        from gpt_cli.inspecting.snapshots import kept_steps

        yield kept_steps(watched.run)
        return
    with sharing():
        with host.importing():
            from gpt_cli.inspecting.computed import computed_steps
        yield computed_steps(watched.run, step_files(watched.run), watched.prompt, watched.source, host)
