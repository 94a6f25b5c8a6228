"""Write files atomically, so that no reader ever sees half of a file."""

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from gpt_cli.common.machine.failures import as_gpt_error, reason
from gpt_cli.errors import EnvironmentFailure, UsageError, shown

Buffer = bytes | bytearray | memoryview

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.\d+\.[0-9a-f]{8}\.tmp")
_LEFT_AFTER = 3600  # seconds without a write, after which the writer of a temporary file counts as killed
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # errors of filesystems without locks


def write_durably(path: Path, chunks: Iterable[Buffer]) -> None:
    """Write a file so that a crash or a power cut leaves either the complete old file or the complete new one.

    Writes a temporary file and renames it. Raises EnvironmentFailure if a step fails, and removes the temporary file.
    """
    require_regular_target(path)
    temporary = _temporary(path)
    try:
        with writing(path):
            _create(temporary, chunks)
            os.replace(temporary, path)
            _sync(path.parent)
    finally:
        # after the rename, there is no temporary file; if removing one fails too, a later write removes it
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def require_regular_target(path: Path) -> None:
    """Raise EnvironmentFailure if `path` cannot be looked at, or if it exists and is not a regular file."""
    with writing(path), contextlib.suppress(FileNotFoundError):  # also without its directory: the writer reports it
        os.lstat(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise EnvironmentFailure(shown(path), "this is not a regular file; name a new or a regular file")


def require_no_file(directory: Path) -> None:
    """Raise UsageError if `directory`, which --out names, is a file or a link without a target."""
    if directory.is_symlink() and not os.path.exists(directory):
        raise UsageError(shown(directory), "this is a broken link, but ‹out› names a directory")
    if directory.exists() and not directory.is_dir():
        raise UsageError(shown(directory), "this is a file, but ‹out› names a directory")


def write_directory(directory: Path, files: Mapping[str, Iterable[Buffer]]) -> None:
    """Write a directory of files (name -> content) atomically, so that no reader sees half of it; make its parents.

    Replaces an old directory; a power cut may leave the old one under a temporary name. Raises EnvironmentFailure if a
    step fails, and then leaves the old directory.
    """
    make_directory(directory.parent)  # refuses x/.. if x is missing, which realpath would accept
    directory = Path(os.path.realpath(directory))  # the target of a link is replaced, not the link
    make_directory(directory.parent)
    new, old = (_temporary(directory, part) for part in (".new", ".old"))
    try:
        with writing(directory, directory.parent):
            os.mkdir(new)
            for name, chunks in files.items():
                _create(new / name, chunks)
            _sync(new)
            if directory.exists():
                os.replace(directory, old)
            os.replace(new, directory)
            _sync(directory.parent)
    finally:
        with contextlib.suppress(OSError):
            if old.exists() and not directory.exists():
                os.replace(old, directory)
            shutil.rmtree(old, ignore_errors=True)
        shutil.rmtree(new, ignore_errors=True)


def append(path: Path, text: str) -> None:
    """Append text to a file, or raise EnvironmentFailure; the text survives a power cut only after `make_durable`."""
    with writing(path), _opened(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC) as descriptor:
        _write_all(descriptor, text.encode())


def make_durable(*paths: Path) -> None:
    """Fsync files and directories, so that new text and new names survive a power cut. Raises EnvironmentFailure."""
    for path in paths:
        with writing(path):
            _sync(path)


def remove(path: Path) -> None:
    """Remove a file if it exists; raise EnvironmentFailure if the system refuses."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise EnvironmentFailure(f"removing {shown(path)}", _refused(path, error)) from error


def move(path: Path, target: Path) -> None:
    """Rename a file within its directory, so that a power cut cannot undo it; raise EnvironmentFailure on failure."""
    with writing(target):
        os.replace(path, target)
        _sync(target.parent)


def remove_if_empty(directory: Path) -> str | None:
    """Remove a directory if it is empty; return None if the directory is gone, else the reason why it stays."""
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        return reason(error)
    return None


def remove_directory(directory: Path) -> None:
    """Remove a directory and all that is in it; raise EnvironmentFailure if the system refuses."""
    try:
        shutil.rmtree(directory)
    except OSError as error:
        raise EnvironmentFailure(f"removing {shown(directory)}", _refused(directory, error)) from error


def temporaries(directory: Path, names: re.Pattern[str]) -> list[Path]:
    """Return the temporary files in `directory`, left over or in use, of files whose final names match `names`."""
    matches = ((_TEMPORARY.fullmatch(path.name), path) for path in directory.iterdir()) if directory.is_dir() else ()
    return [path for match, path in matches if match and names.fullmatch(match["name"])]


def _temporary(target: Path, part: str = "") -> Path:
    """Return a new temporary path for `target` + `part`; remove temporary files of this name unused for an hour."""
    name = target.name + part
    if len(os.fsencode(name)) > 100:  # filesystems allow 255 bytes, or 143 in encrypted homes
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    only_copy = part == ".old" and not target.exists()  # left by a power cut
    with contextlib.suppress(OSError):  # the directory may be unreadable, and a file another user's
        for left in () if only_copy else temporaries(target.parent, re.compile(re.escape(name))):
            if time.time() - max(path.lstat().st_mtime for path in (left, *left.glob("*"))) > _LEFT_AFTER:
                os.unlink(left) if left.is_symlink() or left.is_file() else shutil.rmtree(left)
    return target.parent / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"


def require_writable(directory: Path, meant: Path | None = None) -> None:
    """Raise EnvironmentFailure if no file can be made in `directory`; the error names `meant` (None: `directory`)."""
    path = _temporary(directory / "probe")
    try:
        _create(path, [b"?"])
        os.unlink(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise write_failure(meant or directory, error, directory) from error


def make_directory(directory: Path) -> list[Path]:
    """Make a directory and its parents durably; return the new paths, outermost first. Raises EnvironmentFailure."""
    made: list[Path] = []
    path = directory
    try:
        above = [path for path in reversed([directory, *directory.parents]) if not path.is_dir()]
        if any(path.name == ".." for path in above):  # once x exists, x/../runs is a path that no check has seen
            raise FileNotFoundError(errno.ENOENT, "")
        for path in above:
            try:
                os.mkdir(path)
                made.append(path)
            except FileExistsError:
                if not path.is_dir():  # true when another process has made it in this moment
                    raise
            _sync(path.parent)
    except OSError as error:
        raise EnvironmentFailure(f"making {shown(directory)}", _refused(path, error)) from error
    return made


@contextlib.contextmanager
def writing(path: Path, folder: Path | None = None) -> Iterator[None]:
    """Turn an OSError in the context into the `write_failure` of `path` and `folder`."""
    try:
        yield
    except OSError as error:
        raise write_failure(path, error, folder) from error


def write_failure(path: Path, error: OSError, folder: Path | None = None) -> EnvironmentFailure:
    """Return the error for an OSError while writing `path`; `folder` is the directory written to, if not the parent."""
    hint, folder = None, folder or (path if path.is_dir() else path.parent)
    if error.errno == errno.EDQUOT:
        hint = "delete files or choose another directory"
    elif error.errno == errno.ENOSPC and folder.is_dir():
        hint = f"{shutil.disk_usage(folder).free / 1e6:.0f} MB are free there; delete files or choose another directory"
    elif error.errno == errno.ENOENT:
        hint = f"mkdir -p {shlex.quote(str(path.parent))}"
    return EnvironmentFailure(f"writing {shown(path)}", _refused(path, error), hint=hint)


@contextlib.contextmanager
def spooling(name: str) -> Iterator[None]:
    """Turn an OSError in the context, which writes a temporary file, into EnvironmentFailure about the file `name`."""
    try:
        yield
    except OSError as error:
        if tempfile.tempdir is None:  # no folder can be written
            raise as_gpt_error(error, name) from error
        failure = write_failure(Path(tempfile.tempdir, name), error)
        failure.hint = "set TMPDIR to a folder with more space"
        raise failure from error


@contextlib.contextmanager
def spooled(blocks: Iterable[bytes], name: str) -> Iterator[BinaryIO]:
    """Write blocks to a temporary file, and yield the file at its start; raise EnvironmentFailure if a write fails."""
    with spooling(name):
        file = tempfile.TemporaryFile()  # noqa: SIM115 - its close fails where a write has failed
    try:
        for block in blocks:
            with spooling(name):
                file.write(block)
        with spooling(name):
            file.seek(0)  # which writes the rest
        yield file
    finally:
        with contextlib.suppress(OSError):
            file.close()


def _refused(path: Path, error: OSError) -> str:
    """Return a sentence about an OSError; if permission is missing and another user is the owner, name the owner."""
    if error.errno not in (errno.EACCES, errno.EPERM):
        return reason(error)
    parent = next((p for p in (path, *path.parents) if os.path.exists(p)), None)
    if parent is None or (owner := parent.stat().st_uid) == os.geteuid():
        return reason(error)
    return f"{reason(error)}; {shown(parent)} belongs to user {owner}, and you are user {os.geteuid()}"


def _create(path: Path, chunks: Iterable[Buffer]) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    with _opened(path, flags) as descriptor:
        for chunk in chunks:
            _write_all(descriptor, chunk)
        os.fsync(descriptor)


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: Buffer) -> None:
    """Write all of `content`, with as many calls of os.write as needed."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _sync(path: Path) -> None:
    try:
        with _opened(path, os.O_RDONLY | os.O_CLOEXEC) as descriptor:
            os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EACCES):  # of a shared folder, of a directory that one may not list
            raise


def working_folder() -> str:
    """Return the working directory; raise EnvironmentFailure if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise EnvironmentFailure("this folder", "it was removed, but PyTorch needs it", hint="cd ~") from None


def cache_directory(name: str) -> Path:
    """Return the path of the per-user cache folder `name` (Linux: below XDG_CACHE_HOME or ~/.cache); create nothing.

    Raises EnvironmentFailure for a user without a home directory.
    """
    import platformdirs  # few commands need a cache directory

    try:
        folder = platformdirs.user_cache_path("gpt-cli")
    except RuntimeError:
        folder = Path()
    if not folder.is_absolute():
        raise EnvironmentFailure("cache", "this user has no home directory", hint="set XDG_CACHE_HOME to a folder")
    return folder / name


def python_command() -> list[str]:
    """Return the command that starts this Python again, with -P unless this process imports from the working folder.

    Without -P, `python -m` would import a file such as torch.py from the working folder.
    """
    return [sys.executable, *([] if sys.path[0] in ("", working_folder()) else ["-P"])]
