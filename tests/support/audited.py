"""Loads files of strangers and prints, as JSON, each event of Python's audit that no file may cause.

    python -m support.audited INTACT... -- HOSTILE...

The intact ones come first, without a watch: what they import is what loading needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.header import read_header
from gpt_cli.errors import GptError
from gpt_cli.exchange.gpt2 import read_foreign

FORBIDDEN = (
    "exec", "compile", "import", "marshal.", "pickle.", "socket.", "subprocess.", "ctypes.", "code.", "urllib.",
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.startfile", "os.remove", "os.rename",
    "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate", "shutil.",
)  # fmt: skip
READ_BY_PYTHON = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2] / "gpt_cli"), "/proc/", "/sys/", "/dev/")


def load(path: Path) -> None:
    """Read a checkpoint or a directory in all ways that do not need a prompt."""
    with contextlib.suppress(GptError):
        if path.is_dir():
            foreign = read_foreign(path)
            foreign.weights.require_finite()
            foreign.tokenizer.encode("a")
        else:
            checkpoint = read_checkpoint(path, everything=True)
            checkpoint.build_model()
            checkpoint.tokenizer.encode("a")
    with contextlib.suppress(GptError):
        assert read_header(path).config


def main() -> None:
    """Print a list of [file, event, what]."""
    at = sys.argv.index("--")
    intact, hostile = map(Path, sys.argv[1:at]), list(map(Path, sys.argv[at + 1 :]))
    for path in intact:
        load(path)
    "\0".encode("unicode_escape")  # as messages show control characters
    watched: list[Path] = []
    found: list[tuple[str, str, str]] = []

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if not watched:
            return
        what = str(arguments[0])[:200] if arguments else ""
        if event == "open" and isinstance(arguments[0], str | bytes):
            opened, own = os.path.realpath(os.fsdecode(arguments[0])), os.path.realpath(watched[0])
            inside = opened == own or opened.startswith((own + "/", *READ_BY_PYTHON))
            if not inside:
                found.append((watched[0].name, event, what))
        elif event.startswith(FORBIDDEN) and not (event == "import" and what in sys.modules):
            found.append((watched[0].name, event, what))

    sys.addaudithook(hear)
    for path in hostile:
        watched.append(path)
        load(path)
        watched.clear()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
