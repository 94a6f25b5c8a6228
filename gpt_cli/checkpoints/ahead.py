"""Reads a checkpoint while torch is imported, which takes longer. Needs no torch."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from gpt_cli.callbacks import Host
from gpt_cli.checkpoints.verified import ReadVerified, Verified, read_verified
from gpt_cli.machine.memory import reuse_memory


def read_ahead(path: Path, host: Host) -> ReadVerified:
    """Begin to read a file, unless `host` has loaded it already; returns what gives its content."""
    return ReadingAhead(path).read if host.loaded is None else read_verified


class ReadingAhead:
    """A thread that reads and verifies one file; reading and hashing leave Python's lock to the main thread.

    The process keeps its memory from then on: what the file took, the model's copies of weights reuse.
    """

    def __init__(self, path: Path):
        reuse_memory()
        self._path = path
        self._met: tuple[int, ...] | None = None  # the file that the thread met
        self._found: Verified | BaseException | None = None
        # a daemon, because the process may end before the thread does
        self._thread = threading.Thread(target=self._run, daemon=True)
        with contextlib.suppress(RuntimeError):  # the system refuses another thread
            self._thread.start()

    def read(self, path: Path) -> Verified:
        """Return or raise what `read_verified(path)` would: what the thread found, unless the file has changed since.

        Only the first call can take it, so that the content is freed when the caller has used it.
        """
        if self._thread.ident is not None:
            self._thread.join()
        found, self._found = self._found, None
        if found is None or path != self._path or self._met != _identity(path):
            del found
            return read_verified(path)
        if isinstance(found, Verified):
            return found
        try:
            raise found
        finally:
            del found  # or error and frame would keep each other, and the content, in memory

    def _run(self) -> None:
        self._met = _identity(self._path)
        try:
            self._found = read_verified(self._path)
        except BaseException as error:  # the main thread raises it where it asks for the file
            self._found = error


def _identity(path: Path) -> tuple[int, ...] | None:
    """Numbers of which one changes when a file is written or replaced; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
