"""Read the content of a checkpoint, and verify its digests. Needs no torch."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from gpt_cli.checkpoints.header import Header, check_size, header_of
from gpt_cli.common.files import Buffer
from gpt_cli.common.safetensors_header import misplaced
from gpt_cli.common.untrusted_files import reading
from gpt_cli.errors import CheckpointError, shown

PIECE = 2**22  # bytes that are read and hashed at once
BLANK = "0" * 64  # in place of the digest of the weights while it is computed
OTHER = "use another checkpoint of the run"


@dataclass(frozen=True)
class Verified:
    """The content of a checkpoint file whose digest has been verified; callers may remove tensors from `content`."""

    header: Header
    content: dict[str, np.ndarray]  # the bytes of each tensor, in the order of the header


# receives the name of a tensor, the type of its numbers, and bytes of it
Watch = Callable[[str, str, np.ndarray], object]


def read_verified(path: Path, *, everything: bool = False, watch: Watch | None = None) -> Verified:
    """Read a checkpoint, and verify its header and weights; with `everything`, also the optimizer state.

    With `watch`, the result has no content: `watch` receives name, type and bytes of each tensor, in pieces. Raises
    CheckpointError for a file that is missing, damaged, not written by gpt, or of a newer format.
    """
    with reading(path, CheckpointError) as file:
        header = header_of(file, path)  # refuses a foreign file, of whatever size, before it is read
        if (wrong := misplaced(header.tensors)) is not None:
            sentence = f"the file is damaged: {shown(wrong)} does not lie where its shape says"
            raise CheckpointError(header.where, sentence)
        sizes = {name: one.stop - one.start for name, one in header.tensors.items()}
        # the memory of an array, unlike that of bytes, is not filled first, and has large pages
        content = {} if watch else {name: np.empty(size, np.uint8) for name, size in sizes.items()}
        buffer = np.empty(PIECE if watch else 0, np.uint8)
        in_order = sorted(header.tensors.items(), key=lambda item: item[1][2:])
        weights = [name for name, one in in_order if one.stop <= header.num_weight_bytes]

        def filled(names: Iterable[str]) -> Iterator[Buffer]:
            for name in names:
                for at in range(0, sizes[name], PIECE):
                    size = min(PIECE, sizes[name] - at)
                    piece = buffer[:size] if watch else content[name][at : at + size]
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
    """Return the SHA-256 of the concatenated chunks, in hexadecimal."""
    sha256 = hashlib.sha256()
    for chunk in chunks:
        sha256.update(chunk)
    return sha256.hexdigest()
