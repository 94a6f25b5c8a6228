"""What formats of files have in common: how a file is to be read, how far it may expand, libraries that are extras."""

from __future__ import annotations

import importlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from gpt_cli.errors import DataError, EnvironmentFailure, shown
from gpt_cli.limits import EXPANSION_FROM

# names of fields that a hint shows: a stranger may have chosen them, and a user types what a hint says
is_plain = re.compile(r"[\w.-]{1,64}").fullmatch


@dataclass(frozen=True)
class Reading:
    """What decides how a file becomes documents."""

    text_field: str = "text"
    max_expansion: int = 200


def optional_library(name: str, extra: str, path: Path) -> Any:
    """A library that an extra of the package brings."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        sentence = f"reading a .{extra} file needs the library {name.partition('.')[0]}, which is not installed"
        hint = f"in the clone of gpt: pip install -e '.[{extra}]'"
        raise EnvironmentFailure(shown(path), sentence, hint=hint) from error


class Growth:
    """How much packed data has grown; raises DataError where no text would have become so large."""

    def __init__(self, path: Path, file: BinaryIO, how: Reading):
        self._path, self._how, self._num_bytes = path, how, 0
        self._allowed = max(EXPANSION_FROM, how.max_expansion * os.fstat(file.fileno()).st_size)

    def add(self, num_bytes: int) -> None:
        self.require(num_bytes)
        self._num_bytes += num_bytes

    def require(self, num_bytes: int) -> None:
        """Raise the error if so many bytes more are too many."""
        if self._num_bytes + num_bytes > self._allowed:
            ratio = self._how.max_expansion
            raise DataError(
                shown(self._path),
                f"it expands to more than {ratio} times its size, which text does not",
                hint=f"if it is text after all: --set data.max_expansion={10 * ratio}",
            )
