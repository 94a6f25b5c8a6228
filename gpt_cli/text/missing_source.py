"""Describe the name of a SOURCE that leads nowhere, and suggest the nearest name."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from gpt_cli.common.mistyped import nearest
from gpt_cli.errors import DataError, shown, visible
from gpt_cli.text import datasets
from gpt_cli.text.sources import STDIN

NAME_A_SOURCE = "name a text file, a directory, a glob, - for stdin, or a name of `gpt data list`"
_MOST_NAMES, _MOST_FOLDERS = 1000, 20  # that are looked at
_LONGEST_NAME = 255  # bytes, of most filesystems
_is_address = re.compile(r"(https?|ftp)://.+", re.IGNORECASE).fullmatch


def require_there(name: str) -> None:
    """Raise DataError for the name of a SOURCE that is none: no file, an address, a pattern of no file."""
    path = os.path.expanduser(name)
    if name in (STDIN, *datasets.ENTRIES) or not _is_missing(path):
        return
    if "\n" in name or len(os.fsencode(os.path.basename(name))) > _LONGEST_NAME:
        hint = "save the text to a file, and name that"
        raise DataError(shown(name, 40), "this is a text, and gpt reads files", hint=hint)
    if _is_address(name):
        hint = f"download it first: curl -gL -o my.txt {shlex.quote(visible(name))}, then name my.txt"
        raise DataError(shown(name), "this is an address, and gpt reads files", hint=hint)
    if glob.has_magic(path):
        if any(glob.iglob(path)):
            return
        raise DataError(shown(name), "no file matches this pattern", hint=NAME_A_SOURCE)
    close = next(_near(path), None) or nearest(name, datasets.ENTRIES)
    hint = f"did you mean {shlex.quote(visible(close))}? else {NAME_A_SOURCE}" if close else NAME_A_SOURCE
    raise DataError(shown(name), "there is no such file", hint=hint)


def _is_missing(path: str) -> bool:
    """Return whether there is no such file; False where a directory above is closed, which its reader reports."""
    try:
        os.lstat(path)
    except (OSError, ValueError) as error:
        return isinstance(error, FileNotFoundError | ValueError) or error.errno == errno.ENAMETOOLONG
    return False


def _near(path: str) -> Iterator[str]:
    """Return the paths most like a missing one: in its folder, one of a like name, this folder, or one below."""
    folder, name = os.path.split(path)
    folders = [folder] if os.path.isdir(folder or os.curdir) else list(islice(_near(folder), 1)) or [""]
    stem = Path(name).stem
    for folder in folders:
        names = [os.path.join(folder, one) for one in _names(folder)]
        # stems decide; of files with one stem that of the same ending, else a .txt
        names.sort(key=lambda one: [Path(one).suffix == ending for ending in (Path(name).suffix, ".txt")])
        stems = {Path(one).stem: one for one in names}
        if near := nearest(stem, stems):
            yield stems[near]
        below = islice(filter(os.path.isdir, names), _MOST_FOLDERS)
        yield from filter(os.path.isfile, (os.path.join(one, name) for one in below))


def _names(folder: str) -> list[str]:
    """Return the names in a folder that are not hidden, up to a limit."""
    with contextlib.suppress(OSError), os.scandir(folder or os.curdir) as entries:
        return [entry.name for entry in islice(entries, _MOST_NAMES) if not entry.name.startswith(".")]
    return []
