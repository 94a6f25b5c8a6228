"""The steps of a run that `--over-training` shows. Needs no torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpt_cli.callbacks import Host
from gpt_cli.inspecting.watched import Watched, step_files
from gpt_cli.machine.sharing import sharing

if TYPE_CHECKING:
    from gpt_cli.inspecting.snapshots import Steps


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
