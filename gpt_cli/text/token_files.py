"""Store the token ids of large texts in files, and read windows of ids from memory or from these files.

The files are `part-00000.safetensors`, ... and, written last, `index.json`. A part is durable once it is full, so that
a killed preparation can resume.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from gpt_cli.common.files import make_directory, remove, temporaries, write_durably
from gpt_cli.common.machine.failures import reason
from gpt_cli.common.safetensors_header import MALFORMED, header_bytes, parse_header
from gpt_cli.errors import DataError, EnvironmentFailure, shown
from gpt_cli.text.cache import read_cached_json

CHUNK_TOKENS = 2**20
PART_TOKENS = 2**25
_INDEX = "index.json"
_FORMAT = 1
# the header of a part, of fixed size, so that a file's size follows from its number of tokens
HEADER_BYTES = 256
_NAMES = re.compile(r"part-\d{5,}\.safetensors|index\.json")
_HINT = "gpt data verify SOURCE finds damaged files; at the next start, gpt writes a removed part again"


@dataclass(frozen=True)
class TokenShard:
    """Metadata of a part file: how many tokens and groups (calls of TokenWriter.add) it has, and its ids' sha256."""

    tokens: int
    groups: int
    sha256: str


class TokensOnDisk:
    """The token ids of a text, stored in part files: a read-only sequence of uint16 or uint32 [tokens].

    Every read raises DataError if a file has become shorter, EnvironmentFailure if the disk fails. All files stay open
    as long as this object exists, so that its ids never change, even if the directory is removed or written anew.
    """

    def __init__(self, directory: Path, parts: Sequence[TokenShard], dtype: np.dtype, about: dict[str, Any]):
        """Open the part files; raise OSError if one is missing or has the wrong size."""
        self.directory, self.parts, self.dtype, self.about = directory, parts, dtype, about
        self._starts = [0, *accumulate(part.tokens for part in parts)]
        self._descriptors: list[int] = []
        files = contextlib.ExitStack()
        weakref.finalize(self, files.close)
        for number, part in enumerate(parts):
            self._descriptors.append(os.open(directory / _part_name(number), os.O_RDONLY | os.O_CLOEXEC))
            files.callback(os.close, self._descriptors[-1])
            if os.fstat(self._descriptors[-1]).st_size != HEADER_BYTES + part.tokens * dtype.itemsize:
                raise OSError(errno.EIO, "wrong size")

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, where: slice) -> np.ndarray:
        """Return a copy of the ids in a slice; the slice has no step."""
        start, stop, step = where.indices(len(self))
        assert step == 1
        ids = np.empty(max(0, stop - start), self.dtype)
        self._fill(ids, start)
        return ids

    def windows(self, starts: np.ndarray, length: int) -> np.ndarray:
        """Return the `length` ids from each start on: starts [N] -> ids [N, length]."""
        ids = np.empty((len(starts), length), self.dtype)
        for row in np.argsort(starts, kind="stable"):  # a disk reads faster in order
            self._fill(ids[row], int(starts[row]))
        # the parts are not verified at each start; only `verify` finds other damage
        if int(ids.max(initial=0)) >= self.about.get("vocab_size", 2**32):
            raise DataError(shown(self.directory), "it contains tokens that its tokenizer does not have", hint=_HINT)
        return ids

    def announce(self, starts: np.ndarray, length: int) -> None:
        """Tell the operating system which windows `windows` will read next, so that the system prefetches them."""
        if not hasattr(os, "posix_fadvise"):  # macOS
            return
        for start in starts.tolist():
            for number, offset, num_bytes in self._places(start, length):
                with contextlib.suppress(OSError):  # a piece of advice may be refused
                    os.posix_fadvise(self._descriptors[number], offset, num_bytes, os.POSIX_FADV_WILLNEED)

    def verify(self, count: Callable[[int], object] = lambda _: None) -> None:
        """Raise DataError that names all part files with a wrong digest; `count` receives numbers of tokens read."""
        damaged = []
        for number, part in enumerate(self.parts):
            digest = hashlib.sha256()
            for start in range(self._starts[number], self._starts[number + 1], CHUNK_TOKENS):
                ids = self[start : min(start + CHUNK_TOKENS, self._starts[number + 1])]
                digest.update(_as_bytes(ids))
                count(len(ids))
            if digest.hexdigest() != part.sha256:
                damaged.append(shown(self.directory / _part_name(number)))
        if damaged:
            sentence = "the content does not match its digest, so the file is damaged"
            raise DataError(", ".join(damaged), sentence, hint="remove the file; the next start writes it again")

    def _fill(self, ids: np.ndarray, start: int) -> None:
        """Fill the array `ids` with the ids of the text from position `start` on."""
        left = _as_bytes(ids)
        for number, offset, num_bytes in self._places(start, len(ids)):
            end = offset + num_bytes
            where = shown(self.directory / _part_name(number))
            while offset < end:
                try:
                    num_read = os.preadv(self._descriptors[number], [left[: end - offset]], offset)
                except OSError as error:
                    raise EnvironmentFailure(f"reading {where}", reason(error), hint=_HINT) from error
                if num_read == 0:
                    raise DataError(where, "this file of prepared text was truncated while gpt used it", hint=_HINT)
                left, offset = left[num_read:], offset + num_read

    def _places(self, start: int, length: int) -> Iterator[tuple[int, int, int]]:
        """Yield (part number, byte offset in the part file, number of bytes) for the ids start..start+length-1."""
        end, size = start + length, self.dtype.itemsize
        assert 0 <= start <= end <= len(self), "these ids are outside of the text"
        number = bisect_right(self._starts, start) - 1
        while start < end:
            count = min(end, self._starts[number + 1]) - start
            yield number, HEADER_BYTES + (start - self._starts[number]) * size, count * size
            number, start = number + 1, start + count


Ids = np.ndarray | TokensOnDisk


def open_tokens(directory: Path) -> TokensOnDisk | None:
    """Return the ids in a directory; None if its index is missing or damaged, or a part is missing or has a wrong size.

    Only `verify` checks the content of the parts. Raises EnvironmentFailure if too many files are open.
    """
    if (content := read_index(directory)) is None:
        return None
    try:
        parts = [TokenShard(**part) for part in content["parts"]]
        return TokensOnDisk(directory, parts, np.dtype(content["dtype"]), content["about"])
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            hint = "allow more open files with ulimit -n"
            raise EnvironmentFailure(f"reading {shown(directory)}", reason(error), hint=hint) from error
        return None


def read_index(directory: Path) -> dict[str, Any] | None:
    """Return the index that TokenWriter.finish wrote (`about` and `parts`); None if it is missing or damaged."""
    with contextlib.suppress(KeyError, TypeError):
        index = read_cached_json(directory / _INDEX)
        if index["content"]["format"] == _FORMAT and _digest_of_json(index["content"]) == index["sha256"]:
            return index["content"]
    return None


class TokenWriter:
    """Writer of token ids to part files; the ids of one call of `add` are a group, and stay together in one file.

    If the process is killed, a new writer keeps intact part files, and its caller skips the first `num_groups` groups.
    """

    def __init__(self, directory: Path, dtype: np.dtype | type):
        """Make `directory`, or keep the intact parts in it; raise EnvironmentFailure if it is not writable."""
        self.directory, self.dtype = directory, np.dtype(dtype)
        make_directory(directory)
        for path in (directory / _INDEX, *temporaries(directory, _NAMES)):
            remove(path)
        self._parts: list[TokenShard] = []
        while part := _whole_part(directory / _part_name(len(self._parts)), self.dtype):
            self._parts.append(part)
        self._groups: list[np.ndarray] = []  # of the next part

    @property
    def num_groups(self) -> int:
        """The number of groups (calls of `add`) whose ids are in part files on disk."""
        return sum(part.groups for part in self._parts)

    def add(self, ids: np.ndarray) -> None:
        """Add the ids of one group; raise EnvironmentFailure if a write fails."""
        assert ids.dtype == self.dtype
        if sum(map(len, self._groups)) + len(ids) > PART_TOKENS:
            self._write_part()
        self._groups.append(ids)

    def finish(self, about: dict[str, Any]) -> TokensOnDisk:
        """Write the last part and the index, with the JSON data `about`; return all ids. Raises EnvironmentFailure."""
        self._write_part()
        parts = [asdict(part) for part in self._parts]
        content = {"format": _FORMAT, "dtype": self.dtype.name, "about": about, "parts": parts}
        index = {"sha256": _digest_of_json(content), "content": content}
        write_durably(self.directory / _INDEX, [json.dumps(index, indent=1).encode()])
        if (tokens := open_tokens(self.directory)) is None:
            raise EnvironmentFailure(shown(self.directory), "files were removed from it while gpt wrote there")
        return tokens

    def _write_part(self) -> None:
        if num_ids := sum(map(len, self._groups)):
            contents = [*map(_as_bytes, self._groups)]
            digest = hashlib.sha256()
            for content in contents:
                digest.update(content)
            part = TokenShard(num_ids, len(contents), digest.hexdigest())
            write_durably(self.directory / _part_name(len(self._parts)), [_part_header(part, self.dtype), *contents])
            self._parts.append(part)
        self._groups = []


def _part_header(part: TokenShard, dtype: np.dtype) -> bytes:
    """Return the header of a part file: safetensors with one array `ids`."""
    about = {"sha256": part.sha256, "groups": str(part.groups), "check": _digest_of_json(asdict(part))[:16]}
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


def token_windows(ids: Ids, starts: np.ndarray, length: int) -> np.ndarray:
    """Return the `length` ids from each start on, read from memory or disk: starts [N] -> ids [N, length]."""
    if isinstance(ids, TokensOnDisk):
        return ids.windows(starts, length)
    return ids[starts[:, None] + np.arange(length)]


def validation_windows(num_ids: int, context_length: int, eval_tokens: int | None = None) -> list[tuple[int, int]]:
    """Return windows of validation ids as (start, end): inputs are start..end-1, targets are start+1..end.

    Without `eval_tokens`, the windows cover all ids without overlap, so that each id but the first is a target once.
    With `eval_tokens`, the windows are evenly spaced and cover about that many ids.
    """
    starts: Sequence[int] = range(0, num_ids - 1, context_length)
    if eval_tokens is not None and eval_tokens < num_ids - 1:
        num_windows = min(max(1, eval_tokens // context_length), len(starts))
        starts = [starts[i * len(starts) // num_windows] for i in range(num_windows)]
    return [(start, min(start + context_length, num_ids - 1)) for start in starts]


def chunks(ids: Ids) -> Iterator[np.ndarray]:
    """Yield all ids in order, about a million at a time."""
    return (ids[start : start + CHUNK_TOKENS] for start in range(0, len(ids), CHUNK_TOKENS))


def data_digest(*parts: Ids) -> str:
    """Return the sha256 of the ids of all parts (training, validation); a run recognises its text by this digest."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        for ids in chunks(part):
            digest.update(ids.astype(np.uint32).tobytes())
    return digest.hexdigest()


def _part_name(number: int) -> str:
    return f"part-{number:05d}.safetensors"


def _as_bytes(ids: np.ndarray) -> memoryview:
    """Return the bytes of ids [tokens] without a copy."""
    return ids.view(np.uint8).data


def _digest_of_json(content: dict[str, Any]) -> str:
    """Return the sha256 of JSON data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
