"""Read the content of a checkpoint, and verify its digests. Needs no torch."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from gpt_cli.checkpoints.header import OPTIMIZER_PREFIX, Header, header_of
from gpt_cli.common.files import Buffer
from gpt_cli.common.safetensors_header import TensorEntry, require_in_place
from gpt_cli.common.safetensors_numbers import READABLE, are_finite, widened
from gpt_cli.common.untrusted_files import reading
from gpt_cli.errors import CheckpointError

PIECE = 2**22  # bytes that are read and hashed at once
BLANK = "0" * 64  # in place of the digest of the weights while it is computed
OTHER = "use another checkpoint of the run"


def read_verified(
    path: Path, *, everything: bool = False, keep: bool = True
) -> tuple[Header, dict[str, np.ndarray], Counter[str]]:
    """Read a checkpoint, and verify its header and weights; with `everything`, also the optimizer state.

    Returns the header, the bytes of each tensor that was read, and how many numbers of a tensor are NaN or infinite, if
    any. Without `keep`, there are no bytes, and reading needs little memory. Raises CheckpointError for a file that is
    missing, damaged, not written by gpt, or of a newer format.
    """
    with reading(path, CheckpointError) as file:
        header = header_of(file, path)  # refuses a foreign file, of whatever size, before it is read
        require_in_place(header.tensors, header.where)
        in_order = sorted(header.tensors.items(), key=lambda item: item[1][2:])
        num_weight_bytes = max((one.stop for name, one in in_order if not name.startswith(OPTIMIZER_PREFIX)), default=0)
        weights = [item for item in in_order if item[1].stop <= num_weight_bytes]
        kept = (in_order if everything else weights) if keep else []
        # the memory of an array, unlike that of bytes, is not filled first, and has large pages
        content = {name: np.empty(one.stop - one.start, np.uint8) for name, one in kept}
        buffer, not_finite = np.empty(PIECE, np.uint8), Counter[str]()

        def read(tensors: Iterable[tuple[str, TensorEntry]]) -> Iterator[Buffer]:
            for name, (kind, _, start, stop) in tensors:
                for at in range(0, stop - start, PIECE):
                    size = min(PIECE, stop - start - at)
                    piece = content[name][at : at + size] if keep else buffer[:size]
                    file.readinto(piece.data)  # fills the piece: `reading` reports a file that shrinks meanwhile
                    if kind in READABLE and not are_finite(numbers := piece.view(READABLE[kind]), kind):
                        not_finite[name] += int((~np.isfinite(widened(numbers, kind))).sum())
                    yield piece.data

        file.seek(len(header.content))
        metadata = header.metadata
        blank = header.content.replace(metadata["digest_weights"].encode(), BLANK.encode(), 1)
        intact = digest(chain([blank], read(weights))) == metadata["digest_weights"]
        if everything:
            intact = digest(read(in_order[len(weights) :])) == metadata["digest_rest"] and intact
    if not intact:
        sentence = "the file is damaged: its content does not match its digest"
        raise CheckpointError(header.where, sentence, hint=OTHER)
    return header, content, not_finite


def digest(chunks: Iterable[Buffer]) -> str:
    """Return the SHA-256 of the concatenated chunks, in hexadecimal."""
    sha256 = hashlib.sha256()
    for chunk in chunks:
        sha256.update(chunk)
    return sha256.hexdigest()
