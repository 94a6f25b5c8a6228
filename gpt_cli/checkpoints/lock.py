"""Lock a run directory, so that it has one trainer and no other writer."""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from gpt_cli.checkpoints.run_paths import RunFiles, foreign_file
from gpt_cli.common.file_signatures import HOLDER, LOCK, is_checkpoint
from gpt_cli.common.files import NO_LOCKS, make_directory, require_regular_target, require_writable, write_failure
from gpt_cli.errors import EnvironmentFailure, UsageError, shown, visible

_LOOKS, _LOOK_EVERY = 5, 0.02  # tries, and seconds between: `is_held` in another process locks for a moment


@contextlib.contextmanager
def sole_trainer(
    directory: Path, warn: Callable[[str], object], what: str = "run", *, removes: bool = False
) -> Iterator[Callable[[], None]]:
    """Hold the lock of a run directory inside the context; make a missing directory. Readers need no lock.

    Yields a function that raises EnvironmentFailure if the directory is not there any more. At the end, the context
    removes the lock file, and empty directories that it made. Raises EnvironmentFailure if another process holds the
    lock or the directory cannot be written. `warn` receives a line if the filesystem has no locks. Errors call the
    directory `what` (run or sweep). If `removes`, a full disk without room for the lock is no error.
    """
    made: list[Path] = []
    path = directory / LOCK
    descriptor = None
    try:
        while descriptor is None:
            made += make_directory(directory)
            descriptor = _try_to_lock(path, warn, what, removes=removes)
        held = descriptor

        def require_held() -> None:
            if not _is_at(held, path, unknown=True):
                raise EnvironmentFailure(shown(directory), "it was moved or replaced, or the working directory changed")

        yield require_held
    finally:
        if descriptor is not None:
            if _is_at(descriptor, path):
                with contextlib.suppress(OSError):
                    os.unlink(path)
            os.close(descriptor)
        for empty in reversed(made):
            with contextlib.suppress(OSError):
                os.rmdir(empty)


def is_held(directory: Path) -> bool:
    """Return whether a process on this machine, such as a training, holds the lock of a directory; change no file."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(descriptor)  # which frees the lock too
    return False


def _lock(descriptor: int) -> None:
    """Lock an open file; try for about 0.1 s, then raise BlockingIOError if another process still holds the lock."""
    for looks_left in reversed(range(_LOOKS)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not looks_left:
                raise
            time.sleep(_LOOK_EVERY)


def _try_to_lock(path: Path, warn: Callable[[str], object], what: str, *, removes: bool) -> int | None:
    """Return a descriptor that holds the lock file `path`, or None (try again) if it vanished; see `sole_trainer`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except FileNotFoundError:
        return None  # the directory was removed after a failed start
    except OSError as error:
        if removes and error.errno in (errno.ENOSPC, errno.EDQUOT):  # nor can a training lock it
            return os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        blocked_path = path if os.path.exists(path) else path.parent  # the lock may be another user's
        raise write_failure(blocked_path, error) from error
    is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    # after a power cut, it may be cut short, or zeros
    if not is_regular or not HOLDER.encode().startswith(os.pread(descriptor, len(HOLDER), 0).strip(b"\0")):
        os.close(descriptor)
        raise foreign_file(path.parent, LOCK)
    try:
        _lock(descriptor)
    except BlockingIOError:
        holder = os.read(descriptor, 300).decode("utf-8", "replace").strip() or "another process"
        os.close(descriptor)
        sentence = f"{visible(holder)} is training this {what}, and only one process may train a {what}"
        hint = "wait for it, stop it, or name another directory with ‹out›"
        if holder.startswith(f"{HOLDER}{os.getpid()} on {socket.gethostname()} "):
            hint = "close() the training that this Python has begun, or name another directory with ‹out›"
        raise EnvironmentFailure(shown(path.parent), sentence, hint=hint) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            os.close(descriptor)
            raise write_failure(path, error) from error
        warn(f"the filesystem of {path.parent} has no locks, so gpt cannot keep a second training away")
        return descriptor
    if not _is_at(descriptor, path):
        os.close(descriptor)
        return None
    try:
        now = datetime.now().astimezone().isoformat(" ", "seconds")
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{HOLDER}{os.getpid()} on {socket.gethostname()} since {now}\n".encode())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # gpt runs rm must work on a full disk
            return descriptor
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(descriptor)
        raise write_failure(path, error) from error
    return descriptor


def _is_at(descriptor: int, path: Path, *, unknown: bool = False) -> bool:
    """Return whether `path` still names the open file `descriptor`; `unknown` if the disk does not answer now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return unknown


def require_foreign(path: Path, *, replaces: bool = False) -> None:
    """Raise UsageError if the output file `path`, or the target of a link there, is a checkpoint or a file of a run.

    `replaces` allows overwriting a checkpoint outside runs. A path that a run may use for one of its files raises
    UsageError even before that file exists. Raises EnvironmentFailure if `path` cannot be written.
    """
    with contextlib.suppress(OSError, RuntimeError):  # a circle of links, a missing permission: the writer reports it
        target = path.resolve()
        if target.is_file() and is_checkpoint(target) and not replaces:
            wrong = f"{shown(path)} is a checkpoint, which gpt never overwrites"
            raise UsageError("‹out›", wrong, hint="name another file")
        for directory in (target.parent, target.parent.parent):
            run = RunFiles(directory)
            if run.exists() and run.owns(target):
                wrong = f"{shown(path)} is a file of the run {shown(directory)}, which only gpt train writes"
                raise UsageError("‹out›", wrong, hint="name another file")
    require_regular_target(path)
    require_writable(path.parent, path)
