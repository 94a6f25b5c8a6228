"""Write the token ids of a text as part files, each durable once full, so that a killed preparation can resume."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gpt_cli.common.files import NO_LOCKS, make_directory, remove, temporaries, write_durably, write_failure
from gpt_cli.common.safetensors_header import MALFORMED, header_bytes, parse_header
from gpt_cli.errors import EnvironmentFailure, shown
from gpt_cli.text.token_files import (
    FORMAT,
    HEADER_BYTES,
    INDEX,
    TokenShard,
    TokensOnDisk,
    as_bytes,
    digest_of_json,
    open_tokens,
    part_name,
)

PART_TOKENS = 2**25
LOCK = ".lock"
_NAMES = re.compile(r"part-\d{5,}\.safetensors|index\.json")


class TokenWriter:
    """Writes token ids to part files. The caller adds ids in groups; no group is divided between two files.

    After a kill, a new writer keeps the parts that match their digests, and the caller skips their `num_groups` groups.
    """

    def __init__(self, directory: Path, dtype: np.dtype | type):
        """Make `directory` and keep its intact parts; raise EnvironmentFailure if the system refuses."""
        self.directory, self.dtype = directory, np.dtype(dtype)
        make_directory(directory)
        for path in (directory / INDEX, *temporaries(directory, _NAMES)):
            remove(path)
        self._parts: list[TokenShard] = []
        while part := _whole_part(directory / part_name(len(self._parts)), self.dtype):
            self._parts.append(part)
        # memory is taken as it is filled, so a short text needs little
        self._buffer = np.empty(PART_TOKENS, self.dtype)
        self._num_ids = self._num_groups = 0

    @property
    def num_groups(self) -> int:
        """The number of groups in the part files that are already on disk."""
        return sum(part.groups for part in self._parts)

    def add(self, ids: np.ndarray) -> None:
        """Add the ids of one group; if the system refuses, raise EnvironmentFailure without adding the group."""
        assert ids.dtype == self.dtype
        if self._num_ids + len(ids) > len(self._buffer):
            self._write_part()
        if len(ids) > len(self._buffer):  # one long run of text that cannot be divided
            self._buffer = np.empty(len(ids), self.dtype)
        self._buffer[self._num_ids : self._num_ids + len(ids)] = ids
        self._num_ids += len(ids)
        self._num_groups += 1

    def finish(self, about: dict[str, Any]) -> TokensOnDisk:
        """Write the last part and the index, which also stores `about` (JSON data); return all ids, read from disk.

        Raises EnvironmentFailure if the system refuses.
        """
        self._write_part()
        self._buffer = np.empty(0, self.dtype)
        parts = [asdict(part) for part in self._parts]
        content = {"format": FORMAT, "dtype": self.dtype.name, "about": about, "parts": parts}
        index = {"sha256": digest_of_json(content), "content": content}
        write_durably(self.directory / INDEX, [json.dumps(index, indent=1).encode()])
        tokens = open_tokens(self.directory)
        if tokens is None:
            raise EnvironmentFailure(shown(self.directory), "files were removed from it while gpt wrote there")
        return tokens

    def _write_part(self) -> None:
        if self._num_ids:
            content = as_bytes(self._buffer[: self._num_ids])
            part = TokenShard(self._num_ids, self._num_groups, hashlib.sha256(content).hexdigest())
            write_durably(self.directory / part_name(len(self._parts)), [_part_header(part, self.dtype), content])
            self._parts.append(part)
        self._num_ids = self._num_groups = 0


@contextlib.contextmanager
def sole_writer(directory: Path, notice: Callable[[str], object]) -> Iterator[None]:
    """Run a block with the lock of a token directory, made if missing; wait while another process holds the lock.

    After a wait, the caller checks with `open_tokens` whether the other process wrote the ids. `notice` receives a line
    before waiting. The kernel frees the lock when a process ends, however it ends. On a filesystem without locks, no
    process waits, and two may write the same content. Raises EnvironmentFailure if the directory cannot be written.
    """
    make_directory(directory)
    path = directory / LOCK
    try:
        # the file stays: whoever removed it would part those who wait from those who come
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise write_failure(directory, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notice("another gpt prepares this text; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise write_failure(path, error) from error
        yield
    finally:
        os.close(descriptor)


def _part_header(part: TokenShard, dtype: np.dtype) -> bytes:
    """Return the header of a part file: safetensors with one array `ids`."""
    about = {"sha256": part.sha256, "groups": str(part.groups), "check": digest_of_json(asdict(part))[:16]}
    return header_bytes({"ids": (f"U{8 * dtype.itemsize}", [part.tokens])}, about, num_bytes=HEADER_BYTES)


def _whole_part(path: Path, dtype: np.dtype) -> TokenShard | None:
    """Return the metadata of a part file whose ids have this dtype and match their digest, else None."""
    try:
        with open(path, "rb", buffering=0) as file:
            header = file.read(HEADER_BYTES)
            about, arrays = parse_header(header)
            part = TokenShard(arrays["ids"].shape[0], int(about["groups"]), about["sha256"])
            # the digest covers what follows the header, to the end of the file
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return part if header == _part_header(part, dtype) and digest == part.sha256 else None
    except (OSError, *MALFORMED):
        return None
