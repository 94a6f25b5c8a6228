"""Train a small GPT on your own text, sample from it, and see its attention."""

from __future__ import annotations

from gpt_cli.version import __version__

# that of `typing`, whose import would double the time until `gpt` can handle Ctrl-C
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from gpt_cli.checkpoints.discovery import Loaded

__all__ = ["__version__", "load"]


def load(path: str | Path | None = None, checkpoint: str = "best") -> Loaded:
    """A trained model with its tokenizer and config, ready for use on the CPU.

    `path` is a run directory or one checkpoint file; None takes the newest run under `runs/`.
    `checkpoint` is "best", "last" or a step, for a run directory.
    Raises CheckpointError for a missing, damaged or foreign one.
    """
    from gpt_cli.checkpoints.discovery import load as load_run

    return load_run(path, checkpoint)
