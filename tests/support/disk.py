"""What a disk may hold after a power cut, given the file operations of a program up to then.

What was not yet fsynced may be lost: of a file's content all, a part, or all but its length (zeros); of a
directory any of the changes to its names. What was fsynced is there.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

Tree = dict[str, bytes | None]  # None for a directory
CUTS = 8
# a correct writer leaves less open; of more than this not every combination is tried
MAX_PENDING = 6
MAX_CONTENTS = 400


@dataclass
class _File:
    content: bytes = b""
    durable: bytes = b""

    def versions(self) -> list[bytes]:
        """What may be found of it: what is new as zeros, cut at some places, or whole; or what was overwritten."""
        appended = self.content.startswith(self.durable)
        kept = self.durable if appended else b""
        new = self.content[len(kept) :]
        cut = [new[: len(new) * i // CUTS] for i in range(CUTS)]
        found = [kept + part for part in [b"\0" * len(new), *cut, new]]
        return list(dict.fromkeys(found if appended else [self.durable, *found]))


@dataclass(frozen=True)
class _Change:
    """One name of a directory that now means a file, a directory (None), or nothing (missing)."""

    directory: str
    name: str
    meaning: int | None
    removed: bool = False


@dataclass
class Disk:
    """Follows operations; `states` gives what may be left if the power fails now. Paths are relative to one folder."""

    files: list[_File] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)  # path -> file, as the program sees it
    durable: list[_Change] = field(default_factory=list)
    pending: list[_Change] = field(default_factory=list)

    def create(self, path: str, *, truncate: bool = False) -> int:
        """Open for writing: the file of that path, made when it is missing."""
        if truncate and path in self.names:
            self.files[self.names[path]].content = b""
        if path not in self.names:
            self.files.append(_File())
            self.names[path] = len(self.files) - 1
            self._change(path, self.names[path])
        return self.names[path]

    def write(self, file: int, content: bytes) -> None:
        self.files[file].content += content

    def fsync(self, path: str) -> None:
        """Of a file by its path, or of a directory."""
        if path in self.names:
            self.fsync_file(self.names[path])
        else:
            self.durable += [change for change in self.pending if change.directory == path]
            self.pending = [change for change in self.pending if change.directory != path]

    def fsync_file(self, file: int) -> None:
        self.files[file].durable = self.files[file].content

    def fsync_all(self) -> None:
        self.durable, self.pending = [*self.durable, *self.pending], []
        for file in self.files:
            file.durable = file.content

    def replace(self, source: str, target: str) -> None:
        self.names[target] = self.names.pop(source)
        self._change(target, self.names[target])
        self._change(source, None, removed=True)

    def unlink(self, path: str) -> None:
        del self.names[path]
        self._change(path, None, removed=True)

    def mkdir(self, path: str) -> None:
        self._change(path, None)

    def states(self, matters: Callable[[str], bool]) -> Iterator[Tree]:
        """Every tree of the files that matter that may be found, as contents by path."""
        for kept in _kept(len(self.pending)):
            changes = [*self.durable, *itertools.compress(self.pending, kept)]
            found: dict[str, int] = {}
            directories = {""}
            for change in changes:
                path = f"{change.directory}/{change.name}".lstrip("/")
                if change.removed:
                    found.pop(path, None)
                elif change.meaning is None:
                    directories.add(path)
                else:
                    found[path] = change.meaning
            found = {path: file for path, file in found.items() if matters(path) and _reachable(path, directories)}
            versions = [self.files[file].versions() for file in found.values()]
            for contents in _contents(versions):
                made = {path: None for path in directories if path and _reachable(path, directories)}
                yield made | dict(zip(found, contents, strict=True))

    def _change(self, path: str, meaning: int | None, *, removed: bool = False) -> None:
        parent = str(Path(path).parent)
        self.pending.append(_Change("" if parent == "." else parent, Path(path).name, meaning, removed))


def _reachable(path: str, directories: set[str]) -> bool:
    parents = [str(parent) for parent in Path(path).parents]
    return all(parent in directories for parent in parents if parent != ".")


def _contents(versions: list[list[bytes]]) -> Iterator[tuple[bytes, ...]]:
    """Which content is found of each file: every combination, or of many those in which one file is not whole."""
    if math.prod(map(len, versions)) <= MAX_CONTENTS:
        yield from itertools.product(*versions)
        return
    whole = [found[-1] for found in versions]
    for number, found in enumerate(versions):
        yield from ((*whole[:number], version, *whole[number + 1 :]) for version in found)


def _kept(count: int) -> Iterator[tuple[bool, ...]]:
    """Which of some changes are found: every subset, or of many the first ones and all but one."""
    if count <= MAX_PENDING:
        yield from itertools.product((True, False), repeat=count)
        return
    yield from (tuple(number < length for number in range(count)) for length in range(count + 1))
    yield from (tuple(number != lost for number in range(count)) for lost in range(count))
