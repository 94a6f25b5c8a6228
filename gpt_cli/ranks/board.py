"""What ranks leave for each other to see while their main threads work: that they live, and who speaks to the user.

Needs no torch where gpt has started the processes: their board is a folder.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gpt_cli.ranks.place import Place

if TYPE_CHECKING:
    from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

STORE = "store"  # the file of the store in a folder


class Speaker(NamedTuple):
    """The rank that says why a training ends, and the exit code of all."""

    rank: int
    exit_code: int


class LeftToAnother(Exception):  # noqa: N818 - another rank reports the error
    """Another rank tells the user why the training ends; this one leaves with the same exit code."""

    def __init__(self, exit_code: int):
        super().__init__(exit_code)
        self.exit_code = exit_code


class Board(Protocol):
    """Its methods never raise: where a board is gone, nothing moves on it."""

    def beat(self) -> None:
        """Show that this rank lives."""
        ...

    def beats(self) -> list[int]:
        """A number for each rank that changes when it beats."""
        ...

    def claim(self, exit_code: int) -> bool:
        """Whether this rank is the one that tells the user why all end: the first that asks."""
        ...

    def speaker(self) -> Speaker | None:
        """Whose claim was granted; None while all is well."""
        ...


class FolderBoard:
    """A folder with a file for each rank, whose time of change is its beat: it does not grow, and nothing listens."""

    def __init__(self, folder: Path, rank: int, size: int):
        self.folder, self.rank, self.size = folder, rank, size

    def beat(self) -> None:
        with contextlib.suppress(OSError):
            path = self._beat(self.rank)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            os.utime(path)

    def beats(self) -> list[int]:
        return [self._changed_at(self._beat(rank)) for rank in range(self.size)]

    def claim(self, exit_code: int) -> bool:
        """See Board; whoever makes the file is the first."""
        try:
            descriptor = os.open(self.folder / "said", os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return False
        except OSError:
            return self.rank == 0
        with contextlib.suppress(OSError):
            os.write(descriptor, f"{self.rank} {exit_code}".encode())
        os.close(descriptor)
        return True

    def speaker(self) -> Speaker | None:
        try:
            text = (self.folder / "said").read_text(encoding="ascii")
        except OSError:
            return None
        return _speaker(text)

    def _beat(self, rank: int) -> Path:
        return self.folder / f"beat-{rank}"

    def _changed_at(self, path: Path) -> int:
        try:
            return os.stat(path).st_mtime_ns
        except OSError:
            return 0


class StoreBoard:
    """Keys of a store of torch.distributed, over a connection that no other thread uses."""

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


def folder_board(place: Place) -> FolderBoard:
    """The board of processes that gpt has started."""
    return FolderBoard(Path(place.address), place.rank, place.size)
