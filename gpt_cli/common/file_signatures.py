"""Recognise files and run directories of gpt by content, because other trainers use the same names.

The checks read only the beginning of a file, and never wait for a pipe.
"""

import contextlib
import os
import re
from pathlib import Path

from gpt_cli.common.limits import CONFIG_BYTES
from gpt_cli.common.untrusted_files import reading
from gpt_cli.errors import CheckpointError, GptError

FORMAT = "gpt-cli checkpoint"
LOCK, HOLDER = ".lock", "process "  # the lock file of a training, and its first bytes
_HEADER = '{"__metadata__":{"'
_CHECKPOINT = f'{_HEADER}format":"{FORMAT}"'
# how the files of a run and of a sweep begin; tensor files after the 8 bytes of a length
_BEGINNINGS = {
    ".safetensors": (_CHECKPOINT, f"{_HEADER}gpt-cli attention snapshot ", f"{_HEADER}gpt-cli tuned lens "),
    "config.yaml": ("model:\n  context_length: ",),
    "metrics.jsonl": ('{"step": ',),
    "samples.txt": ("=== step ",),
    "outcome.json": ('{"stopped_by": ',),
    "loss.png": ("\x89PNG\r\n\x1a\n",),
    "sent.jsonl": ('{"run": ',),
    "sweep.json": ('{\n "',),
    "report.html": ("<!doctype html>\n<html lang=",),
}
_SECTIONS = {"model", "data", "tokenizer", "train", "inspect"}
_SIZES = {"context_length", "d_model", "num_heads", "num_blocks"}


def is_checkpoint(path: Path) -> bool:
    """Return whether a file begins as checkpoints of gpt do."""
    return (_content(path, 8 + len(_CHECKPOINT)) or "")[8:] == _CHECKPOINT


def is_config(path: Path, *, whole: bool = False) -> bool:
    """Return whether a file is a gpt config of any version; if `whole`, the file must not be cut off."""
    text = _content(path, CONFIG_BYTES) or ""
    sections, keys = re.findall(r"^(\w+):", text, re.MULTILINE), re.findall(r"(\w+):", text)
    cut = not text.endswith("\n") or "train" not in sections
    return _SECTIONS.issuperset(sections) and _SIZES.issubset(keys) and not (whole and cut)


def is_lock(path: Path) -> bool:
    """Return whether a training holds the lock file `path`, or was killed while holding it."""
    return _content(path, len(HOLDER)) == HOLDER


def holds_run(directory: Path) -> bool:
    """Return whether a directory is a run of gpt: it has a folder `checkpoints`, and a config or checkpoint of gpt."""
    checkpoints = directory / "checkpoints"
    return os.path.isdir(checkpoints) and (  # false, not an error, for a name that is too long
        is_config(directory / "config.yaml") or any(map(is_checkpoint, checkpoints.glob("*.safetensors")))
    )


def is_ours(path: Path) -> bool:
    """Return whether gpt may have written a file, by its name and first bytes; True if it is empty or all NULs."""
    beginnings = _BEGINNINGS.get(path.name) or _BEGINNINGS[path.suffix]
    if (text := _content(path, 2**16)) is None:
        return False
    text = text[8 if path.suffix == ".safetensors" else 0 :].lstrip("\0")
    begins = any(text[: len(one)] == one[: len(text)] for one in beginnings)
    return begins or (path.name == "config.yaml" and is_config(path))


def _content(path: Path, most: int) -> str | None:
    """Return the first `most` bytes of a file as Latin-1; None if the file is unreadable or not a regular file."""
    with contextlib.suppress(GptError), reading(path, CheckpointError) as file:
        return file.read(most).decode("latin-1")
    return None
