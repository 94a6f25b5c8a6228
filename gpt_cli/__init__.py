"""Train a small GPT on your own text, sample from it, and see its attention."""

from __future__ import annotations

import sys

from gpt_cli.version import __version__

# instead of typing.TYPE_CHECKING: importing typing would double the time until `gpt` can handle Ctrl-C
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from gpt_cli import data as data
    from gpt_cli.api import bench as bench
    from gpt_cli.api import evaluate as evaluate
    from gpt_cli.api import explain as explain
    from gpt_cli.api import export_model as export_model
    from gpt_cli.api import import_model as import_model
    from gpt_cli.api import info as info
    from gpt_cli.api import remove_runs as remove_runs
    from gpt_cli.api import report as report
    from gpt_cli.api import runs as runs
    from gpt_cli.api import sweep as sweep
    from gpt_cli.api import tokens as tokens
    from gpt_cli.checkpoints.discovery import Loaded
    from gpt_cli.config import Config
    from gpt_cli.training.reports import Report

# functions of gpt_cli.api, which imports pydantic, and modules of functions, one for each group of commands
_COMMANDS = (
    "bench",
    "evaluate",
    "explain",
    "export_model",
    "import_model",
    "info",
    "remove_runs",
    "report",
    "runs",
    "sweep",
    "tokens",
)
_GROUPS = ("data",)
__all__ = [
    "__version__",
    "bench",
    "data",
    "evaluate",
    "explain",
    "export_model",
    "import_model",
    "info",
    "load",
    "remove_runs",
    "report",
    "runs",
    "sweep",
    "tokens",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _COMMANDS + _GROUPS:
        raise AttributeError(f"module 'gpt_cli' has no attribute {name!r}")
    from importlib import import_module

    if name in _GROUPS:
        return import_module(f"gpt_cli.{name}")
    from gpt_cli import api

    return getattr(api, name)


def load(path: str | Path | None = None, checkpoint: str | int = "best") -> Loaded:
    """A trained model with its tokenizer and config, ready for use on the CPU.

    `path` is a run directory or one checkpoint file; None takes the newest run under `runs/`.
    `checkpoint` is "best", "last" or a step, for a run directory.
    Raises CheckpointError for a missing, damaged or foreign one.
    """
    from gpt_cli.checkpoints.discovery import load as load_run

    return load_run(path, str(checkpoint))


def _to_stderr(line: str) -> None:
    from gpt_cli.language import say

    sys.stderr.write(f"warning: {say(line)}\n")


def train(
    config: str | Path | Config | None = None,
    *,
    data: str | Sequence[str] | None = None,
    out: str | Path | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    overwrite: bool = False,
    init_from: str | Path | None = None,
    notice: Callable[[str], object] = lambda _: None,
    warn: Callable[[str], object] = _to_stderr,
) -> Generator[Report, None, None]:
    """Train a model as `gpt train` does: a generator of reports, of which the last is Finished.

        from gpt_cli import load, train

        for report in train("tiny", data="my.txt", out="runs/mine", settings=["train.max_steps=500"]):
            print(report)
        model = load("runs/mine").model

    Nothing runs until the reports are taken. `config` is a YAML file, the name of a shipped config or a Config; None
    takes the run's own on `resume`. `data` is one SOURCE or several, `out` the run directory (default: runs/ and the
    name of the config), `settings` are texts like those of `--set`. `init_from` is a run, a checkpoint or a directory
    of transformers, with whose weights, sizes and tokenizer a new run begins. `notice` and `warn` receive lines for the
    user. The reports are the classes of `gpt_cli.training.reports`; the first is Prepared, and files are written after
    it; of a run with nothing left to train, Finished is the only one.
    The run directory is locked as long as the generator lives. Ctrl-C raises KeyboardInterrupt and saves nothing;
    `resume=True` continues from the last checkpoint. Raises GptError, whose kinds are in `gpt_cli.errors`.
    """
    from functools import partial
    from pathlib import Path

    from gpt_cli.exchange.beginning import read_initial
    from gpt_cli.training.starting import train as start

    begin = None if init_from is None else partial(read_initial, Path(init_from), notice)
    yield from start(
        config,
        data=data,
        out=out,
        settings=settings,
        resume=resume,
        overwrite=overwrite,
        begin=begin,
        notice=notice,
        warn=warn,
    )
