"""Reading and writing files so that nobody ever sees half of one."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from gpt_cli.errors import EnvironmentFailure, GptError, shown

Buffer = bytes | bytearray | memoryview

_REASONS = {
    errno.ENOSPC: "no space left on the filesystem",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than this process may write",
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.EROFS: "the filesystem is read-only",
    errno.ENOENT: "no such directory",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.EISDIR: "is a directory",
    errno.ENAMETOOLONG: "the name is too long",
}


def reason(error: OSError) -> str:
    """What the operating system refused, in words."""
    return _REASONS.get(error.errno or 0, (error.strerror or str(error)).lower())


def write_durably(path: Path, chunks: Iterable[Buffer]) -> None:
    """Write a file so that a crash or a power cut leaves the old one or the new one, whole.

    Temporary file beside the target, fsync, rename, fsync of the directory; the umask decides on permissions.
    Raises EnvironmentFailure when the system refuses, and then leaves no temporary file.
    """
    if path.exists() and not path.is_file():
        raise EnvironmentFailure(shown(path), "is not a regular file", "name a new or a regular file")
    temporary = path.parent / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(temporary, flags, 0o666), "wb") as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        raise write_failure(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_failure(path: Path, error: OSError) -> EnvironmentFailure:
    """The error to raise for an OSError met while writing `path`."""
    hint = None
    if error.errno == errno.ENOSPC:
        hint = f"{shutil.disk_usage(path.parent).free / 1e6:.0f} MB are free there; make room or choose another place"
    elif error.errno == errno.ENOENT:
        hint = f"mkdir -p {path.parent}"
    return EnvironmentFailure(f"writing {shown(path)}", reason(error), hint=hint)


def sync_directory(directory: Path) -> None:
    """Make renames and new names in `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Make a directory and its parents; raises EnvironmentFailure when the system refuses."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFailure(f"making {shown(directory)}", reason(error)) from error


def read_bytes(path: Path, kind: type[GptError], *, hint: str | None = None) -> bytes:
    """A whole regular file, read once; `kind` is the error for a missing, special or changing one.

    Never waits on a pipe or a device. Raises EnvironmentFailure where permission is missing.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise kind(shown(path), "no such file", hint=hint) from None
    except PermissionError as error:
        raise EnvironmentFailure(f"reading {shown(path)}", reason(error)) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        told = reason(error) if isinstance(error, OSError) else "no such file"
        raise kind(shown(path), told, hint=hint) from error
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        os.close(descriptor)
        raise kind(shown(path), "is not a regular file", hint=hint)
    with open(descriptor, "rb") as file:
        content = file.read()
        if len(content) != before.st_size or os.fstat(descriptor).st_mtime_ns != before.st_mtime_ns:
            raise kind(shown(path), "changed while it was read", hint="try again when nothing writes to it")
    return content


def cache_directory(name: str) -> Path:
    """The per-user cache folder `name`: below XDG_CACHE_HOME, else ~/.cache; not yet made.

    Raises EnvironmentFailure where there is neither that variable nor a home.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "gpt-cli" / name
    except RuntimeError as error:
        raise EnvironmentFailure("cache", "there is no home directory", "set XDG_CACHE_HOME to a folder") from error
