"""Stream the files of SOURCEs (paths, globs, catalogue names), each once; suggest names for missing files."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import re
import shlex
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gpt_cli.common.file_signatures import holds_run
from gpt_cli.common.limits import DIRECTORY_LEVELS
from gpt_cli.common.machine.failures import reason
from gpt_cli.common.mistyped import nearest
from gpt_cli.config.schema import DataConfig
from gpt_cli.errors import DataError, EnvironmentFailure, shown, visible
from gpt_cli.text import datasets

STDIN = "-"
NAME_A_SOURCE = "name a text file, a directory, a glob, - for stdin, or a name of `gpt data list`"
_MOST_NAMES, _MOST_FOLDERS = 1000, 20  # that a search for a similar name examines
_LONGEST_NAME = 255  # bytes, of most filesystems
_is_address = re.compile(r"(https?|ftp)://.+", re.IGNORECASE).fullmatch


def is_hidden(name: str) -> bool:
    """Return whether no user wrote a file of this name, such as Word's ~$letter.docx or WSL's a.txt:Zone.Identifier."""
    return name.startswith((".", "~$", "desktop.ini", "Thumbs.db", "__MACOSX")) or name.endswith("Zone.Identifier")


def source_names(*settings: str | Sequence[str] | None) -> list[str]:
    """Return the sources (paths, globs, names) in settings like data.source: each a name, a list of names, or None."""
    return [name for named in settings for name in ([named] if isinstance(named, str) else named or ())]


def reads_stdin(config: DataConfig) -> bool:
    """Return whether stdin is among the sources of the training text or the validation text."""
    return STDIN in source_names(config.source, config.validation_source)


class SourceFile(NamedTuple):
    """A file to read, or a source that is not a file: stdin or a catalogue entry."""

    name: str
    named: bool  # by the user; others are left out where they are not text
    status: os.stat_result | None  # None without a file, or where the file is missing


@dataclass
class SourceWalk:
    """An iterable over the files of SOURCEs, in order, which also counts files and bytes.

    Files of a directory are sorted by the components of their paths. Each file comes once, even if several names or
    links lead to it. An unreadable directory is an error; with `skip_closed` it is left out, unless the user named it.
    """

    sources: Sequence[str]
    skip_closed: bool = False
    closed: dict[str, None] = field(default_factory=dict)  # the directories left out, as an ordered set
    special: list[str] = field(default_factory=list)  # broken links, pipes, sockets below a directory
    num_repeated: int = 0
    num_files: int = 0
    num_bytes: int = 0
    newest: int = 0  # the latest change of a file, in ns
    only_files: bool = True  # no stdin or catalogue entry, which the fingerprint does not cover
    began: int = field(default_factory=time.time_ns)
    # of each file: path, size, times, device, inode
    _signatures: hashlib._Hash = field(default_factory=hashlib.sha256)

    def __iter__(self) -> Iterator[SourceFile]:
        outputs, seen = _outputs(), set[bytes]()  # 100 MB for a million files, which end with the pass
        for source in self.sources:
            for file, identity in self._files_of(source):
                unnamed = None if file.named else file.status
                if unnamed and (not stat.S_ISREG(unnamed.st_mode) or (unnamed.st_dev, unnamed.st_ino) in outputs):
                    self.special.append(file.name)
                    continue
                # a million paths would take twice the memory of their digests
                digest = hashlib.blake2b(os.fsencode(identity), digest_size=16).digest()
                if digest in seen:
                    self.num_repeated += 1
                    continue
                seen.add(digest)
                self._note(file)
                yield file
        if self.closed:
            self._signatures.update(repr([*self.closed]).encode("utf-8", "surrogateescape"))

    def finished(self) -> SourceWalk:
        """Walk all files without opening them, so that counts and fingerprint are complete; return self."""
        for _ in self:
            pass
        return self

    def fingerprint(self) -> str:
        """Return the sha256 of the names, sizes, times and inodes of all files, after the walk has ended."""
        return self._signatures.hexdigest()

    def _note(self, file: SourceFile) -> None:
        self.num_files += 1
        signature: tuple[object, ...] = (file.name, file.named)
        if (status := file.status) is not None:
            self.num_bytes += status.st_size
            self.newest = max(self.newest, status.st_ctime_ns)
            signature += (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino)
        else:
            self.only_files = False
        self._signatures.update(repr(signature).encode("utf-8", "surrogateescape") + b"\n")

    def _files_of(self, source: str) -> Iterator[tuple[SourceFile, str]]:
        """Yield the files of one SOURCE, each with its real path, which does not depend on links."""
        if source == STDIN or source in datasets.ENTRIES:
            yield SourceFile(source, True, None), source
            return
        name = os.path.expanduser(source)
        if os.path.isdir(name):  # false, not an error, for a name that is too long
            yield from self._below(str(Path(name)), os.path.realpath(name), named=True)
        elif not os.path.lexists(name) and (matches := set(self._matches(name, set()))):
            # a pattern such as .* names hidden files
            files = (path for path in matches if os.path.isfile(path) and not is_hidden(Path(path).name.lstrip(".")))
            for match in sorted(files, key=lambda match: Path(match).parts):
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    yield SourceFile(str(Path(match)), False, os.stat(match)), os.path.realpath(match)
        else:
            try:
                file, identity = SourceFile(str(Path(name)), True, os.stat(name)), os.path.realpath(name)
            except (OSError, ValueError):  # opening the file raises the error
                file, identity = SourceFile(name, True, None), name  # the unchanged name: ./- is not stdin
            yield file, identity

    def _below(self, folder: str, real: str, *, named: bool = False) -> Iterator[tuple[SourceFile, str]]:
        """Yield the files below `folder` (real path: `real`), no hidden files or gpt runs; follow no directory links.

        Raises DataError for a directory that is too deep, and for a run directory if the user `named` it.
        """
        _require_levels(folder)
        try:
            # names alone: the entries of scandir take 1 GB for a million files
            names = sorted(os.listdir(folder))
        except OSError as error:
            self._refuse(error, folder, named=named)
            return
        if "checkpoints" in names and holds_run(Path(folder)):
            if named:
                sentence = "this is a run directory, but gpt reads none of its files as text"
                raise DataError(shown(folder), sentence, hint="keep texts in another directory, or name their files")
            return  # one of our runs, whose files are not a corpus
        start, real_start = os.path.join("" if folder == "." else folder, ""), os.path.join(real, "")
        for name in names:
            if is_hidden(name):
                continue
            path = start + name
            try:
                status = os.lstat(path)
            except FileNotFoundError:  # removed meanwhile
                continue
            except OSError as error:  # the other names would fail, too
                self._refuse(error, folder, named=named)
                return
            if link := stat.S_ISLNK(status.st_mode):
                with contextlib.suppress(OSError):  # a broken link stays one
                    status = os.stat(path)
            if not stat.S_ISDIR(status.st_mode):
                yield SourceFile(path, False, status), os.path.realpath(path) if link else real_start + name
            elif not link:
                yield from self._below(path, real_start + name)

    def _matches(self, pattern: str, walked: set[tuple[str, int]], readable: str = "") -> Iterator[str]:
        """Yield the paths that match a glob; its ** follows no links to directories, which may form cycles.

        `walked` holds the pairs (directory, number of pattern parts after **) that are done; none is walked again. If
        `readable` is not empty, the pattern begins with this directory, and all directories above it are readable.
        Raises DataError for a pattern of too many levels.
        """
        if not readable and glob.has_magic(pattern):  # glob recurses once for each level
            _require_levels(pattern)
        parts = pattern.split(os.sep)
        if "**" not in parts:
            self._look_for_closed(pattern, readable)
            yield from glob.iglob(pattern)
            return
        at = parts.index("**")
        start, rest = os.sep.join([*parts[:at], ""]), parts[at + 1 :] or ["*"]
        self._look_for_closed(start, readable)
        for top in glob.iglob(start) if start else [""]:
            for folder, below, _ in os.walk(top or os.curdir, onerror=self._refuse_unless_removed):
                here = (os.path.normpath(folder), len(rest))
                if here in walked:  # as is everything below
                    below.clear()
                    continue
                walked.add(here)
                _require_levels(folder)
                below[:] = (name for name in below if not name.startswith("."))
                escaped = glob.escape(folder)
                yield from self._matches(os.path.join(escaped, *rest), walked, escaped)

    def _look_for_closed(self, pattern: str, readable: str) -> None:
        """Call `_refuse` for each unreadable directory that a glob would skip silently; check none above `readable`."""
        while pattern != readable and (above := os.path.dirname(pattern)) not in ("", pattern):
            needed = os.X_OK | (os.R_OK if glob.has_magic(os.path.basename(pattern)) else 0)
            for folder in glob.iglob(above):
                if os.path.isdir(folder) and not os.access(folder, needed):
                    self._refuse(PermissionError(errno.EACCES, "", folder), folder)
            pattern = above

    def _refuse_unless_removed(self, error: OSError) -> None:
        if isinstance(error, PermissionError):
            self._refuse(error, error.filename)

    def _refuse(self, error: OSError, folder: str, *, named: bool = False) -> None:
        """Add a forbidden `folder` to `closed` if `skip_closed` and not `named`; else raise EnvironmentFailure."""
        closed = isinstance(error, PermissionError)
        if closed and self.skip_closed and not named:
            self.closed[os.path.normpath(folder)] = None
            return
        hint = "make it readable; ‹data.skip_bad=true› leaves such directories out" if closed else None
        if named:
            hint = "make it readable, or name the files to read"
        raise EnvironmentFailure(f"reading {shown(error.filename or folder)}", reason(error), hint=hint) from error


def _outputs() -> set[tuple[int, int]]:
    """Return the (device, inode) of stdout and stderr, which a walk skips: a log would change while gpt reads it."""
    identities = set[tuple[int, int]]()
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # closed
            status = os.fstat(descriptor)
            identities.add((status.st_dev, status.st_ino))
    return identities


def _require_levels(folder: str) -> None:
    """Raise DataError for a directory whose path has more than DIRECTORY_LEVELS separators."""
    if folder.count(os.sep) > DIRECTORY_LEVELS:
        raise DataError(shown(folder), f"gpt reads directories of at most {DIRECTORY_LEVELS} levels")


def require_there(name: str) -> None:
    """Raise DataError if `name` leads to no text: a missing file, a URL, a glob without a match, or a text itself."""
    path = os.path.expanduser(name)
    if name in (STDIN, *datasets.ENTRIES) or not _is_missing(path):
        return
    if "\n" in name or len(os.fsencode(os.path.basename(name))) > _LONGEST_NAME:
        hint = "save the text to a file, and name that file"
        raise DataError(shown(name, 40), "this is a text, but gpt reads files", hint=hint)
    if _is_address(name):
        hint = f"download it first: curl -gL -o my.txt {shlex.quote(visible(name))}, then name my.txt"
        raise DataError(shown(name), "this is an address, but gpt reads files", hint=hint)
    if glob.has_magic(path):
        _require_levels(path)
        if any(glob.iglob(path)):
            return
        raise DataError(shown(name), "no file matches this pattern", hint=NAME_A_SOURCE)
    close = next(_near(path), None) or nearest(name, datasets.ENTRIES)
    hint = f"did you mean {shlex.quote(visible(close))}? else {NAME_A_SOURCE}" if close else NAME_A_SOURCE
    raise DataError(shown(name), "there is no such file", hint=hint)


def _is_missing(path: str) -> bool:
    """Return whether a path does not exist; False below an unreadable directory, where opening the path fails."""
    try:
        os.lstat(path)
    except (OSError, ValueError) as error:
        return isinstance(error, FileNotFoundError | ValueError) or error.errno == errno.ENAMETOOLONG
    return False


def _near(path: str) -> Iterator[str]:
    """Yield existing paths like the missing `path`: in its folder, in a folder of similar name, or one level below."""
    if path.count(os.sep) > DIRECTORY_LEVELS:
        return
    folder, name = os.path.split(path)
    folders = [folder] if os.path.isdir(folder or os.curdir) else list(islice(_near(folder), 1)) or [""]
    stem = Path(name).stem
    for folder in folders:
        names = [os.path.join(folder, one) for one in _names(folder)]
        # the nearest stem wins; of files with one stem, the one with the same ending, else a .txt
        names.sort(key=lambda one: [Path(one).suffix == ending for ending in (Path(name).suffix, ".txt")])
        stems = {Path(one).stem: one for one in names}
        if near := nearest(stem, stems):
            yield stems[near]
        below = islice(filter(os.path.isdir, names), _MOST_FOLDERS)
        yield from filter(os.path.isfile, (os.path.join(one, name) for one in below))


def _names(folder: str) -> list[str]:
    """Return at most _MOST_NAMES names in a folder, without hidden ones; [] if the folder cannot be read."""
    with contextlib.suppress(OSError), os.scandir(folder or os.curdir) as entries:
        return [entry.name for entry in islice(entries, _MOST_NAMES) if not is_hidden(entry.name)]
    return []
