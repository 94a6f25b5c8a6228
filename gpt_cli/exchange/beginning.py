"""Any model that a training can begin with: a run, a checkpoint, or a directory of transformers. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.exchange.gpt2 import read_foreign
from gpt_cli.training.initial import Given, Initial, initial_of_run


def read_initial(path: Path, notice: Callable[[str], object] = lambda _: None) -> Initial:
    """The model that `--init-from` names; `notice` receives what a directory has that is left out.

    Raises CheckpointError where there is none that fits.
    """
    if not (path / "config.json").is_file() or RunFiles(path).exists():
        return initial_of_run(path)
    foreign = read_foreign(path)
    for line in foreign.notices:
        notice(line)
    return Initial(str(path), foreign.config, given=Given(foreign.tokenizer, foreign.weights.__getitem__))
