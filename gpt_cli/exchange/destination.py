"""Where an export may be written. Needs no torch."""

from __future__ import annotations

import json
import os
from pathlib import Path

from gpt_cli.checkpoints.protection import require_foreign
from gpt_cli.errors import CheckpointError, GptError, UsageError, shown
from gpt_cli.limits import FOREIGN_CONFIG_BYTES
from gpt_cli.opening import read_bytes

_MOST = ("the config of a model", FOREIGN_CONFIG_BYTES)

# of a directory for transformers
FILES = (
    "README.md",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)


# of a hand-out
PAGES = ("attention.html", "film.html", "index.html", "model.html")


def require_directory(out: Path, form: str) -> None:
    """Raises UsageError where `out` is neither new, nor empty, nor an earlier export of this form, which a new one
    replaces, or where a new name is that of a file."""
    known, is_ours = (FILES, _is_export) if form == "hf" else (PAGES, _is_handout)
    replaced = Path(os.path.realpath(out))  # also for x/.., where there is no x
    if replaced.is_dir():
        names = sorted(path.name for path in replaced.iterdir())
        if names and not is_ours(replaced, names):
            foreign = next((name for name in names if name not in known), None)
            contains = f"contains {shown(foreign)}" if foreign else "has files that gpt export did not write"
            raise UsageError("--out", f"{shown(out)} {contains}; name a new directory, an empty one or an export")
    elif os.path.lexists(out):
        raise UsageError("--out", f"{shown(out)} is not a directory, as --format {form} writes")
    elif out.suffix in (".safetensors", ".html"):
        sentence = f"{shown(out)} is the name of a file, and --format {form} writes a directory"
        raise UsageError("--out", sentence, hint=f"--format {out.suffix[1:]} writes one file")


def require_file(out: Path, form: str) -> None:
    """Raises UsageError where `out` does not end in the name of its form, is a directory, or belongs to a run."""
    if out.suffix != f".{form}":
        raise UsageError("--out", f"{shown(out.name)} does not end in .{form}, as --format {form} writes")
    if out.is_dir():
        raise UsageError("--out", f"{shown(out)} is a directory, and --format {form} writes a file")
    require_foreign(out)


def _is_export(directory: Path, names: list[str]) -> bool:
    """Whether we wrote all of a directory; transformers names its version in a config.json that it writes again."""
    try:
        config = json.loads(read_bytes(directory / "config.json", CheckpointError, most=_MOST))
    except (GptError, ValueError, RecursionError):
        return False
    known = isinstance(config, dict) and "gpt_cli" in config and "transformers_version" not in config
    return known and set(names) <= set(FILES)


def _is_handout(directory: Path, names: list[str]) -> bool:
    """Whether we wrote all of a directory: its first page says so."""
    try:
        first = read_bytes(directory / "index.html", CheckpointError, most=("a page", 2**20))
    except GptError:
        return False
    return b'<script type="application/json" id="content">{"handout": ' in first and set(names) <= set(PAGES)
