"""Token ids, in memory or on disk: windows, chunks, digest, and files with the ids of large texts.

The files are `part-00000.safetensors`, ... and, written last, `index.json`; token_file_writer.py writes them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from gpt_cli.common.machine.failures import reason
from gpt_cli.common.untrusted_files import read_bytes
from gpt_cli.errors import DataError, EnvironmentFailure, GptError, shown

CHUNK_TOKENS = 2**20
INDEX = "index.json"
FORMAT = 1
# the header of a part, of fixed size, so that a file's size follows from its number of tokens
HEADER_BYTES = 256
_HINT = "gpt data verify SOURCE finds damaged files; a part that you remove is written again at the next start"


@dataclass(frozen=True)
class TokenShard:
    """Metadata of a part file: its numbers of tokens and of groups (see TokenWriter), and the sha256 of its ids."""

    tokens: int
    groups: int
    sha256: str


class TokensOnDisk:
    """The token ids of a text, stored in part files: a read-only sequence of uint16 or uint32 [tokens].

    Every read raises DataError if a file has become shorter, EnvironmentFailure if the disk fails. All files stay open,
    so that ids never change while they are in use, even if the directory is removed or written anew; nobody closes
    them before the last user is gone.
    """

    def __init__(self, directory: Path, parts: Sequence[TokenShard], dtype: np.dtype, about: dict[str, Any]):
        """Open the part files; raise OSError if one is missing or has the wrong size."""
        self.directory, self.parts, self.dtype, self.about = directory, parts, dtype, about
        self._starts = [0, *accumulate(part.tokens for part in parts)]
        self._descriptors: list[int] = []
        files = contextlib.ExitStack()
        weakref.finalize(self, files.close)
        for number, part in enumerate(parts):
            path = directory / part_name(number)
            self._descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
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
        # nobody verifies the parts at each start; other damage than this shows in `verify` alone
        if int(ids.max(initial=0)) >= self.about.get("vocab_size", 2**32):
            raise DataError(shown(self.directory), "it contains tokens that its tokenizer does not have", hint=_HINT)
        return ids

    def announce(self, starts: np.ndarray, length: int) -> None:
        """Tell the operating system which windows will be read next, so that it prefetches them."""
        if not hasattr(os, "posix_fadvise"):  # macOS
            return
        for start in starts.tolist():
            for number, offset, num_bytes in self._places(start, length):
                with contextlib.suppress(OSError):  # a piece of advice may be refused
                    os.posix_fadvise(self._descriptors[number], offset, num_bytes, os.POSIX_FADV_WILLNEED)

    def verify(self, count: Callable[[int], object] = lambda _: None) -> None:
        """Check every part file against its digest; `count` receives the number of tokens read since its last call.

        Raises DataError that names all damaged files.
        """
        damaged = []
        for number, part in enumerate(self.parts):
            digest = hashlib.sha256()
            for start in range(self._starts[number], self._starts[number + 1], CHUNK_TOKENS):
                ids = self[start : min(start + CHUNK_TOKENS, self._starts[number + 1])]
                digest.update(as_bytes(ids))
                count(len(ids))
            if digest.hexdigest() != part.sha256:
                damaged.append(shown(self.directory / part_name(number)))
        if damaged:
            sentence = "the content does not match its digest, so the file is damaged"
            hint = "remove the file; the next start writes it again"
            raise DataError(", ".join(damaged), sentence, hint=hint)

    def _fill(self, ids: np.ndarray, start: int) -> None:
        """Fill the array `ids` with the ids of the text from position `start` on."""
        left = as_bytes(ids)
        for number, offset, num_bytes in self._places(start, len(ids)):
            end = offset + num_bytes
            where = shown(self.directory / part_name(number))
            while offset < end:
                try:
                    num_read = os.preadv(self._descriptors[number], [left[: end - offset]], offset)
                except OSError as error:
                    raise EnvironmentFailure(f"reading {where}", reason(error), hint=_HINT) from error
                if num_read == 0:
                    raise DataError(where, "this file of prepared text was cut while gpt used it", hint=_HINT)
                left, offset = left[num_read:], offset + num_read

    def _places(self, start: int, length: int) -> Iterator[tuple[int, int, int]]:
        """Yield where ids start..start+length-1 are stored: (part number, byte offset in its file, bytes)."""
        end, size = start + length, self.dtype.itemsize
        assert 0 <= start <= end <= len(self), "these ids are outside of the text"
        number = bisect_right(self._starts, start) - 1
        while start < end:
            count = min(end, self._starts[number + 1]) - start
            yield number, HEADER_BYTES + (start - self._starts[number]) * size, count * size
            number, start = number + 1, start + count


Ids = np.ndarray | TokensOnDisk


def open_tokens(directory: Path) -> TokensOnDisk | None:
    """Return the ids of a directory; None if its index is missing or damaged, or a part is missing or wrong in size.

    Only `verify` checks the content of the parts. Raises EnvironmentFailure where too many files are open.
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
    except (ValueError, KeyError, TypeError):
        return None


def read_index(directory: Path) -> dict[str, Any] | None:
    """Return the index that TokenWriter.finish wrote (`about` and `parts`); None if it is missing or damaged."""
    try:
        index = json.loads(read_bytes(directory / INDEX, DataError))
        content = index["content"]
        return content if content["format"] == FORMAT and digest_of_json(content) == index["sha256"] else None
    except (GptError, ValueError, KeyError, TypeError):
        return None


def windows(ids: Ids, starts: np.ndarray, length: int) -> np.ndarray:
    """Return the `length` ids from each start on, read from memory or disk: starts [N] -> ids [N, length]."""
    if isinstance(ids, TokensOnDisk):
        return ids.windows(starts, length)
    return ids[starts[:, None] + np.arange(length)]


def validation_windows(num_ids: int, context_length: int, eval_tokens: int | None = None) -> list[tuple[int, int]]:
    """Return windows of validation ids as (start, end): inputs are start..end-1, targets are start+1..end.

    Without `eval_tokens`, the windows cover all ids without overlap, so that each id but the first is a target once;
    with it, the windows are evenly spaced and cover about `eval_tokens` ids.
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


def part_name(number: int) -> str:
    """Return the name of the part file `number`, such as part-00000.safetensors."""
    return f"part-{number:05d}.safetensors"


def as_bytes(ids: np.ndarray) -> memoryview:
    """Return the bytes of ids [tokens] without a copy."""
    return ids.view(np.uint8).data


def digest_of_json(content: dict[str, Any]) -> str:
    """Return the sha256 of JSON data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
