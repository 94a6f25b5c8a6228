"""Whether the packages of loggers are there; none is imported. Needs no torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from gpt_cli.errors import EnvironmentFailure, together


def require_installed(names: Sequence[str]) -> None:
    """Raise EnvironmentFailure that names every logger whose package is missing."""
    missing = [name for name in names if not _is_installed(name)]
    if not missing:
        return
    hint = f"in the clone of gpt: pip install -e '.[{','.join(missing)}]'"
    sentence = "the package of {} is not installed"
    raise together([EnvironmentFailure("train.log_to", sentence.format(name), hint=hint) for name in missing])


def _is_installed(name: str) -> bool:
    # a folder of that name, such as wandb makes where it runs, has no origin
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None
