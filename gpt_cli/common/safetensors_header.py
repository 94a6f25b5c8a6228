"""Read and write the header of a safetensors file: 8 bytes of length, then JSON. Needs no torch."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from gpt_cli.common.strict_json import strict_json
from gpt_cli.errors import CheckpointError, shown, visible

# what `parse_header` raises for JSON that no safetensors file has
MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1}
SIZES |= {"U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1}


class TensorEntry(NamedTuple):
    """A tensor in a file: its dtype, its shape, and its bytes from `start` to `stop` after the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read_header_bytes(file: BinaryIO, most: int) -> tuple[int, bytes]:
    """Return the length of a file's header, which the first 8 bytes state, and these 8 bytes followed by the header.

    If the header is longer than `most` bytes, only the first 8 bytes are read. A truncated file yields fewer bytes.
    """
    beginning = file.read(8)
    length = int.from_bytes(beginning, "little") if len(beginning) == 8 else 0
    return length, beginning + (file.read(length) if length <= most else b"")


def parse_header(content: bytes) -> tuple[Any, dict[str, TensorEntry]]:
    """Parse the safetensors header at the start of `content`; return its metadata and its tensors.

    The metadata should map str to str, but this function checks neither the metadata nor the layout of the tensors.
    Raises one of the errors in MALFORMED if the header is invalid.
    """
    end = 8 + int.from_bytes(content[:8], "little")
    entries = strict_json(content[8:end].decode("utf-8"))
    return entries.pop("__metadata__", {}), {name: _stored(entry) for name, entry in entries.items()}


def _stored(entry: Mapping[str, Any]) -> TensorEntry:
    dtype, shape, offsets = entry["dtype"], tuple(entry["shape"]), tuple(entry["data_offsets"])
    if dtype not in SIZES:
        kind = visible(json.dumps(dtype, ensure_ascii=False))
        raise ValueError(f"a tensor has numbers of type {kind}, which gpt does not support")
    if len(offsets) != 2 or not all(isinstance(n, int) and 0 <= n < 2**48 for n in (*shape, *offsets)):
        raise ValueError("a tensor has a shape or an offset that is not of whole numbers")
    return TensorEntry(dtype, shape, *offsets)


def require_in_place(tensors: Mapping[str, TensorEntry], where: str) -> None:
    """Raise CheckpointError about the file `where` if a tensor has a gap or overlap before it, or a wrong size."""
    end = 0
    for name, (dtype, shape, start, stop) in sorted(tensors.items(), key=lambda item: item[1][2:]):
        if start != end or stop - start != math.prod(shape) * SIZES[dtype]:
            raise CheckpointError(where, f"the file is damaged: the place of {shown(name)} does not match its shape")
        end = stop


def header_bytes(
    tensors: Mapping[str, tuple[str, Sequence[int]]], metadata: Mapping[str, str], *, num_bytes: int | None = None
) -> bytes:
    """Return the header of a file with `tensors`, name -> (dtype, shape), in order.

    The header is padded to `num_bytes` (None: a multiple of 8). Raises ValueError if `num_bytes` is too small.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + SIZES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text = text.ljust(len(text) + -len(text) % 8 if num_bytes is None else num_bytes - 8)
    if num_bytes not in (None, 8 + len(text)):
        raise ValueError(f"the header has {8 + len(text)} bytes, more than {num_bytes}")
    return len(text).to_bytes(8, "little") + text
