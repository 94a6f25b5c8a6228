"""Opens files that anyone may have made: regular ones, read whole, and unchanged meanwhile."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gpt_cli.errors import EnvironmentFailure, GptError, reason, shown


@contextlib.contextmanager
def reading(path: Path, kind: type[GptError], *, hint: str | None = None) -> Iterator[BinaryIO]:
    """A regular file to read from; `kind` is the error for a missing, special, broken or changing one.

    Never waits on a pipe or a device. Raises EnvironmentFailure where permission is missing.
    """
    with open_regular(path, kind, hint=hint) as file:
        before = os.fstat(file.fileno())
        try:
            yield file
        except OSError as error:  # a broken disk
            raise kind(shown(path), reason(error), hint=hint) from error
        require_unchanged(path, file, before, kind)


def open_regular(path: Path, kind: type[GptError], *, hint: str | None = None) -> BinaryIO:
    """A regular file, for a reader who outlives a `with`; raises errors as `reading` does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise kind(shown(path), "there is no such file", hint=hint) from None
    except PermissionError as error:
        raise EnvironmentFailure(f"reading {shown(path)}", reason(error)) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        sentence = reason(error) if isinstance(error, OSError) else "there is no such file"
        raise kind(shown(path), sentence, hint=hint) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise kind(shown(path), "this is not a regular file", hint=hint)
    return open(descriptor, "rb")


def require_unchanged(
    path: Path, file: BinaryIO, before: os.stat_result, kind: type[GptError], *, complete: bool = True
) -> None:
    """Raise `kind` where an open file is no longer what it was `before`, or was not read as a whole."""
    after = os.fstat(file.fileno())
    if not complete or (after.st_mtime_ns, after.st_size) != (before.st_mtime_ns, before.st_size):
        hint = "try again when no other program writes to it"
        raise kind(shown(path), "this file changed while gpt read it", hint=hint)


def read_bytes(
    path: Path, kind: type[GptError], *, hint: str | None = None, most: tuple[str, int] | None = None
) -> bytes:
    """A whole regular file; raises what `reading` raises.

    `most` says what such files are, and how many bytes they have at most: a larger one is refused unread.
    """
    with reading(path, kind, hint=hint) as file:
        before = os.fstat(file.fileno())
        if most and before.st_size > most[1]:
            sentence = f"{most[0]} has at most {most[1]:,} bytes, but this file has {before.st_size:,}"
            raise kind(shown(path), sentence, hint=hint)
        # bounded: it may be growing without end; None comes of what would wait, such as /proc/kmsg
        content = file.read(before.st_size + 1) or b""
        require_unchanged(path, file, before, kind, complete=len(content) == before.st_size)
    return content


def require_reachable(path: Path) -> None:
    """Raises EnvironmentFailure for what lies in a directory that the user may not enter."""
    try:
        os.stat(path)
    except PermissionError as error:
        raise EnvironmentFailure(f"reading {shown(path)}", reason(error)) from error
    except (OSError, ValueError):
        return
