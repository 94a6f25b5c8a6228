"""Train a small GPT on your own text, sample from it, and see its attention."""

from __future__ import annotations

from gpt_cli.common import __version__

# instead of typing.TYPE_CHECKING: importing typing would double the time until `gpt` can handle Ctrl-C
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from gpt_cli import configs as configs
    from gpt_cli import data as data
    from gpt_cli.api import attention as attention
    from gpt_cli.api import bench as bench
    from gpt_cli.api import compare as compare
    from gpt_cli.api import evaluate as evaluate
    from gpt_cli.api import explain as explain
    from gpt_cli.api import export_model as export_model
    from gpt_cli.api import heads as heads
    from gpt_cli.api import import_model as import_model
    from gpt_cli.api import info as info
    from gpt_cli.api import lens as lens
    from gpt_cli.api import patch as patch
    from gpt_cli.api import remove_runs as remove_runs
    from gpt_cli.api import report as report
    from gpt_cli.api import runs as runs
    from gpt_cli.api import sample as sample
    from gpt_cli.api import sweep as sweep
    from gpt_cli.api import tokens as tokens
    from gpt_cli.api import train as train
    from gpt_cli.trained import Trained

# modules, one for each group of commands; gpt_cli.api has the functions of the other commands, and imports pydantic
_GROUPS = ("configs", "data")
__all__ = ["__version__", "attention", "bench", "compare", "configs", "data", "evaluate", "explain", "export_model"]
__all__ += ["heads", "import_model", "info", "lens", "load", "patch", "remove_runs", "report", "runs", "sample"]
__all__ += ["sweep", "tokens", "train"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    from importlib import import_module, util

    if name in _GROUPS:
        return import_module(f"gpt_cli.{name}")
    if name in __all__:
        return getattr(import_module("gpt_cli.api"), name)
    sentence = f"module 'gpt_cli' has no attribute {name!r}"
    if name.startswith("_") or util.find_spec(f"gpt_cli.{name}"):  # not a typo: `from gpt_cli import` looks here first
        raise AttributeError(sentence)
    from gpt_cli.config.suggest import function_meant

    meant = function_meant(name, __all__)
    raise AttributeError(f"{sentence}; did you mean {meant}?" if meant else sentence)


def load(path: str | Path | None = None, checkpoint: str | int = "best") -> Trained:
    """Load a trained model, tokenizer and config on the CPU; functions like gpt_cli.sample are methods of the result.

    `path` is a run directory or one checkpoint file; None means the newest run under `runs/`. `checkpoint` selects the
    checkpoint of a run directory: "best", "last" or the number of a step. Raises CheckpointError if the checkpoint is
    missing, damaged or not written by gpt, UsageError if `path` or `checkpoint` has a wrong form.
    """
    if not (path is None or isinstance(path, str) or hasattr(path, "__fspath__")):
        from gpt_cli.errors import UsageError, visible

        hint = 'gpt_cli.load("runs/tiny") loads the run of that name'
        raise UsageError("path", f"{visible(repr(path), 200)} is not text", hint=hint)
    from gpt_cli.checkpoints.load import load as load_run
    from gpt_cli.common.machine.torch_modes import default_modes
    from gpt_cli.errors import keywords_named
    from gpt_cli.trained import Trained

    with keywords_named(), default_modes():
        return Trained(**vars(load_run(path, str(checkpoint))))
