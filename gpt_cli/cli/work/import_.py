"""What `gpt import` does before it loads torch: it reads all but the weights, and refuses what cannot be imported."""

from __future__ import annotations

import os
from pathlib import Path

from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console
from gpt_cli.errors import UsageError, shown
from gpt_cli.exchange.gpt2 import read_foreign
from gpt_cli.files import require_no_file


def import_(*, directory: Path, out: Path | None, overwrite: bool, json: bool, quiet: bool) -> None:
    """Make a run of a model of transformers, and say what it is."""
    run = RunFiles(out or Path("runs") / os.path.basename(os.path.realpath(directory)))
    _require_place(run, overwrite)
    foreign = read_foreign(directory)
    console = Console(quiet)
    with importing_torch():
        from gpt_cli.cli.work.adopting import adopt_and_show  # only now torch
    adopt_and_show(foreign, run.path, console, json=json)


def _require_place(run: RunFiles, overwrite: bool) -> None:
    """Raises UsageError where something would be replaced that nobody named."""
    require_no_file(run.path)
    if run.exists() and not overwrite:
        raise UsageError(shown(run.path), "there is a run already; replace it with --overwrite, or name another --out")
    if not run.exists() and (found := run.files()):
        sentence = f"it contains {found[0].name}, which no run wrote; name an empty or a new directory with --out"
        raise UsageError(shown(run.path), sentence)
