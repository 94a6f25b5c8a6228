"""Heartbeats of ranks, and the choice of the one rank that tells the user why a training ends.

Needs no torch if gpt has started the processes: their heartbeats are files in a folder.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpt_cli.errors import EnvironmentFailure

if TYPE_CHECKING:
    from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

STORE = "store"  # the file of the store in a folder
LAUNCHER_RANK = -1  # the launcher's, which is no rank, but may say why all end


class Speaker(NamedTuple):
    """The rank that tells the user why a training ends, and the exit code of all ranks."""

    rank: int
    exit_code: int


class LeftToAnother(Exception):  # noqa: N818 - another rank reports the error
    """Another rank tells the user why the training ends; this rank exits with the same code."""

    def __init__(self, exit_code: int):
        super().__init__(exit_code)
        self.exit_code = exit_code


class LostProcess(EnvironmentFailure):
    """Another rank ended without telling the user why."""


class FolderHeartbeats:
    """Heartbeats as modification times of files in a folder, one for each rank: no file grows, and no server runs.

    The files stay open, so that heartbeats go on after a cleaner of TMPDIR has removed the files. Methods never raise:
    a rank whose file cannot be opened has no heartbeat.
    """

    def __init__(self, folder: Path, rank: int, size: int):
        self.folder, self.rank, self.size = folder, rank, size
        self._opened: dict[str, int] = {}
        self._open("said", os.O_CREAT | os.O_APPEND | os.O_RDWR)

    def beat(self) -> None:
        """Record a heartbeat of this rank."""
        descriptor = self._open(f"beat-{self.rank}", os.O_CREAT | os.O_WRONLY)
        if descriptor is not None:
            os.utime(descriptor)

    def beats(self) -> list[int]:
        """Return one number for each rank, which changes with each heartbeat; 0 before the first."""
        opened = (self._open(f"beat-{rank}", os.O_RDONLY) for rank in range(self.size))
        return [0 if beat is None else os.fstat(beat).st_mtime_ns for beat in opened]

    def claim(self, exit_code: int) -> bool:
        """Claim the right to tell the user why the training ends; return whether this rank's claim was the first."""
        line = f"{self.rank} {exit_code}\n".encode()
        try:
            os.write(self._opened["said"], line)
            return os.lseek(self._opened["said"], 0, os.SEEK_CUR) == len(line)
        except (OSError, KeyError):
            return self.rank == 0

    def speaker(self) -> Speaker | None:
        """Return the rank whose claim came first, with its exit code; None as long as no rank made a claim."""
        try:
            return _speaker(os.pread(self._opened["said"], 100, 0).decode().partition("\n")[0])
        except (OSError, KeyError):
            return None

    def _open(self, name: str, flags: int) -> int | None:
        """Return the descriptor of a file in the folder, which stays open; None if the file cannot be opened."""
        if name not in self._opened:
            with contextlib.suppress(OSError):
                self._opened[name] = os.open(self.folder / name, flags | os.O_CLOEXEC, 0o600)
        return self._opened.get(name)


class StoreHeartbeats:
    """The methods of FolderHeartbeats on keys of a torch.distributed store, over a separate connection."""

    def __init__(self, store: Store, rank: int, size: int):
        self.store, self.rank, self.size = store, rank, size

    def beat(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.store.add(f"beat/{self.rank}", 1)

    def beats(self) -> list[int]:
        try:
            return [self.store.add(f"beat/{rank}", 0) for rank in range(self.size)]
        except RuntimeError:
            return []

    def claim(self, exit_code: int) -> bool:
        try:
            first = self.store.add("claims", 1) == 1
            if first:
                self.store.set("said", f"{self.rank} {exit_code}")
        except RuntimeError:
            return self.rank == 0
        return first

    def speaker(self) -> Speaker | None:
        try:
            return _speaker(self.store.get("said").decode()) if self.store.check(["said"]) else None
        except RuntimeError:
            return None


def _speaker(text: str) -> Speaker | None:
    rank, _, code = text.partition(" ")
    return Speaker(int(rank), int(code)) if code else None


Heartbeats = FolderHeartbeats | StoreHeartbeats
