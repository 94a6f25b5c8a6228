"""Import optional libraries for logging and file formats, which pip installs as extras. Needs no torch."""

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpt_cli.errors import EnvironmentFailure, shown, together


def require_installed(names: Sequence[str]) -> None:
    """Raise EnvironmentFailure that names every logger in `names` whose package is not installed."""
    if not (missing := [name for name in names if not is_installed(name)]):
        return
    hint = f"in the clone of gpt: pip install -e '.[{','.join(missing)}]'"
    sentence = "the package of {} is not installed"
    raise together([EnvironmentFailure("train.log_to", sentence.format(name), hint=hint) for name in missing])


def is_installed(name: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    # a folder of that name, such as wandb makes where it runs, has no origin
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


def optional_library(name: str, extra: str, path: Path) -> Any:
    """Import library `name`, which reads `path`; if missing, raise EnvironmentFailure that names pip's `extra`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        sentence = f"reading a {path.suffix} file needs the library {name.partition('.')[0]}, which is not installed"
        hint = f"in the clone of gpt: pip install -e '.[{extra}]'"
        raise EnvironmentFailure(shown(path), sentence, hint=hint) from error
