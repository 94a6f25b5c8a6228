"""Read and write files of NumPy arrays: safetensors with JSON metadata, and a SHA-256 of both. Needs no torch."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from gpt_cli.common.safetensors_header import MALFORMED, parse_header
from gpt_cli.common.strict_json import strict_json
from gpt_cli.common.untrusted_files import read_bytes
from gpt_cli.errors import CheckpointError, shown

_DENSE = (",", ":")
_SPACED = (", ", ": ")  # in the digest of a tuned lens that version 0.2 wrote


@dataclass(frozen=True)
class ArrayFile:
    """Reader and writer of one type of file: NumPy arrays with JSON metadata, and a SHA-256 of both.

    Error messages contain `what` (such as "a tuned lens") and `hint`; `key` is the name of the only metadata entry.
    """

    key: str  # of the only entry of a file's metadata
    what: str
    hint: str | None = None

    def to_bytes(self, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
        """Return the content of a file with the metadata `about` and the `arrays`; equal input gives equal bytes."""
        # safetensors writes arrays that are not contiguous in a wrong order
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        # one entry, because safetensors writes several in any order
        content = {"about": about, "digest": _digest(about, arrays)}
        return safetensors.numpy.save(arrays, {self.key: canonical_json(content)})

    def read(self, path: Path, size_limit: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return a file's metadata and arrays; raise CheckpointError for a bad file or one over `size_limit` bytes."""
        content = read_bytes(path, CheckpointError, most=(self.what, size_limit))
        try:
            arrays = safetensors.numpy.load(content)
            metadata, _ = parse_header(content)
            stored = strict_json(metadata[self.key])
            about, digest = stored["about"], stored["digest"]
        except (SafetensorError, *MALFORMED):
            raise self.refusal(path) from None
        if digest not in (_digest(about, arrays, separators) for separators in (_DENSE, _SPACED)):
            raise self.refusal(path)
        return about, arrays

    def refusal(self, path: Path) -> CheckpointError:
        """Return the error for a file that is damaged or of another type."""
        return CheckpointError(shown(path), f"this is not {self.what} of gpt, or it is damaged", hint=self.hint)


def _digest(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray], separators: tuple[str, str] = _DENSE) -> str:
    """Return the SHA-256 of metadata (as JSON with `separators`) and arrays, in hexadecimal."""
    digest = hashlib.sha256(canonical_json(about, separators).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def canonical_json(content: Any, separators: tuple[str, str] = _DENSE) -> str:
    """Return `content` as JSON with sorted keys, so that equal contents give equal texts; by default without spaces."""
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=separators, allow_nan=False)
