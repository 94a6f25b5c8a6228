"""The files of which the ids of a large text consist: `part-00000.safetensors`, ... and, written last, `index.json`."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

INDEX = "index.json"
FORMAT = 1
# of a part: a header of fixed size, so that a file's size follows from its number of tokens
HEADER_BYTES = 256


@dataclass(frozen=True)
class Part:
    """What one file contains; the digest is over the bytes of its ids."""

    tokens: int
    groups: int
    sha256: str


def part_name(number: int) -> str:
    """The file of a part."""
    return f"part-{number:05d}.safetensors"


def as_bytes(ids: np.ndarray) -> memoryview:
    """The bytes of ids [tokens], not copied."""
    return ids.view(np.uint8).data


def digest_of_json(content: dict[str, Any]) -> str:
    """The sha256 of plain data."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def part_header(part: Part, dtype: np.dtype) -> bytes:
    """The header of a safetensors file with one array `ids`, filled up with spaces."""
    header = {
        "__metadata__": {"sha256": part.sha256, "groups": str(part.groups), "check": digest_of_json(asdict(part))[:16]},
        "ids": {
            "dtype": f"U{8 * dtype.itemsize}",
            "shape": [part.tokens],
            "data_offsets": [0, part.tokens * dtype.itemsize],
        },
    }
    text = json.dumps(header, separators=(",", ":")).encode().ljust(HEADER_BYTES - 8)
    assert len(text) == HEADER_BYTES - 8
    return struct.pack("<Q", len(text)) + text


def whole_part(path: Path, dtype: np.dtype) -> Part | None:
    """What a file contains, if it is a part with ids of this type that match their digest; else None."""
    try:
        with open(path, "rb", buffering=0) as file:
            header = file.read(HEADER_BYTES)
            content = json.loads(header[8:])
            about = content["__metadata__"]
            part = Part(content["ids"]["shape"][0], int(about["groups"]), about["sha256"])
            # the digest is that of what follows the header, to the end of the file
            whole = (
                header == part_header(part, dtype) and hashlib.file_digest(file, "sha256").hexdigest() == part.sha256
            )
            return part if whole else None
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
