"""Reads the content of a checkpoint and compares it with its digests. Needs no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gpt_cli.checkpoints.header import Header, check_size, header_of
from gpt_cli.errors import CheckpointError
from gpt_cli.files import Buffer
from gpt_cli.opening import reading

BLANK = "0" * 64  # in place of the digest of the weights while it is computed
OTHER = "use another checkpoint of the run"


@dataclass(frozen=True)
class Verified:
    """A whole file, whose header and weights match their digest."""

    header: Header
    content: bytes


# reads the file of a checkpoint, perhaps ahead
ReadVerified = Callable[[Path], Verified]


def read_verified(path: Path, *, everything: bool = False) -> Verified:
    """Read a checkpoint and verify its header and weights; with `everything` the rest too.

    Raises CheckpointError for a file that is missing, damaged, foreign or newer.
    """
    with reading(path, CheckpointError) as file:
        header = header_of(file, path)  # refuses a foreign file, of whatever size, before it is read
        file.seek(0)
        content = file.read(len(header.content) + header.num_data_bytes)
    check_size(header, len(content))
    metadata, data = header.metadata, memoryview(content)[len(header.content) :]
    blank = header.content.replace(metadata["digest_weights"].encode(), BLANK.encode(), 1)
    if digest([blank, data[: header.num_weight_bytes]]) != metadata["digest_weights"]:
        raise _damaged(header)
    if everything and digest([data[header.num_weight_bytes :]]) != metadata["digest_rest"]:
        raise _damaged(header)
    return Verified(header, content)


def _damaged(header: Header) -> CheckpointError:
    sentence = "the file is damaged: its content does not match its digest"
    return CheckpointError(header.where, sentence, hint=OTHER)


def digest(chunks: Iterable[Buffer]) -> str:
    """The SHA-256 of the chunks one after the other, in hexadecimal."""
    found = hashlib.sha256()
    for chunk in chunks:
        found.update(chunk)
    return found.hexdigest()
