"""Reads the content of a checkpoint, perhaps while torch is imported, and verifies its digests. Needs no torch."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from gpt_cli.checkpoints.header import Header, check_size, header_of
from gpt_cli.common.files import Buffer
from gpt_cli.common.host import Host
from gpt_cli.common.machine.memory import reuse_memory
from gpt_cli.common.safetensors_header import misplaced
from gpt_cli.common.untrusted_files import reading
from gpt_cli.errors import CheckpointError, shown

if TYPE_CHECKING:
    import numpy as np

PIECE = 2**22  # bytes that are read and hashed at once
BLANK = "0" * 64  # in place of the digest of the weights while it is computed
OTHER = "use another checkpoint of the run"


@dataclass(frozen=True)
class Verified:
    """A whole file, whose header and weights match their digest; its reader may take the tensors out."""

    header: Header
    content: dict[str, np.ndarray]  # the bytes of each tensor, in the order of the header


# receives the name of a tensor, the type of its numbers, and bytes of it
Watch = Callable[[str, str, "np.ndarray"], object]
# reads the file of a checkpoint, perhaps ahead
ReadVerified = Callable[[Path], Verified]


def read_verified(path: Path, *, everything: bool = False, watch: Watch | None = None) -> Verified:
    """Read a checkpoint and verify its header and weights; with `everything` the rest too.

    With `watch` the result has no content: it receives name, type and bytes of tensors, piece by piece. Raises
    CheckpointError for a file that is missing, damaged, foreign or newer.
    """
    import numpy as np  # its memory, unlike that of bytes, is not filled first, and has large pages

    with reading(path, CheckpointError) as file:
        header = header_of(file, path)  # refuses a foreign file, of whatever size, before it is read
        if (wrong := misplaced(header.tensors)) is not None:
            sentence = f"the file is damaged: {shown(wrong)} does not lie where its shape says"
            raise CheckpointError(header.where, sentence)
        sizes = {name: one.stop - one.start for name, one in header.tensors.items()}
        content = {} if watch else {name: np.empty(size, np.uint8) for name, size in sizes.items()}
        room = np.empty(PIECE if watch else 0, np.uint8)
        in_order = sorted(header.tensors.items(), key=lambda item: item[1][2:])
        weights = [name for name, one in in_order if one.stop <= header.num_weight_bytes]

        def filled(names: Iterable[str]) -> Iterator[Buffer]:
            for name in names:
                for at in range(0, sizes[name], PIECE):
                    size = min(PIECE, sizes[name] - at)
                    piece = room[:size] if watch else content[name][at : at + size]
                    if file.readinto(piece.data) < size:
                        check_size(header, file.tell())
                    if watch:
                        watch(name, header.tensors[name].dtype, piece)
                    yield piece.data

        file.seek(len(header.content))
        metadata = header.metadata
        blank = header.content.replace(metadata["digest_weights"].encode(), BLANK.encode(), 1)
        intact = digest(chain([blank], filled(weights))) == metadata["digest_weights"]
        rest = filled(name for name, _ in in_order[len(weights) :])
        if everything:
            intact = digest(rest) == metadata["digest_rest"] and intact
        else:
            deque(rest, maxlen=0)
    if not intact:
        sentence = "the file is damaged: its content does not match its digest"
        raise CheckpointError(header.where, sentence, hint=OTHER)
    return Verified(header, content)


def digest(chunks: Iterable[Buffer]) -> str:
    """The SHA-256 of the chunks one after the other, in hexadecimal."""
    found = hashlib.sha256()
    for chunk in chunks:
        found.update(chunk)
    return found.hexdigest()


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
