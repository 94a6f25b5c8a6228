"""Read and write NumPy arrays of a run as safetensors files with JSON metadata and one digest. Needs no torch."""

from __future__ import annotations

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

_SEPARATORS = (",", ":")
_SPACED = (", ", ": ")  # in the digest of a tuned lens that version 0.2 wrote


@dataclass(frozen=True)
class ArrayFile:
    """A type of array file: its metadata have the key `key`, and error messages name it `what` and end with `hint`."""

    key: str
    what: str
    hint: str | None = None

    def to_bytes(self, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
        """Return the bytes of a file that holds the metadata `about` and `arrays`; equal input gives equal bytes."""
        # safetensors writes others in a wrong order
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        # one entry, because safetensors writes several in any order
        content = {"about": about, "digest": _digest(about, arrays)}
        return safetensors.numpy.save(arrays, {self.key: canonical_json(content)})

    def read(self, path: Path, most: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return metadata and arrays; raise CheckpointError if the file is not valid or has more than `most` bytes."""
        content = read_bytes(path, CheckpointError, most=(self.what, most))
        try:
            arrays = safetensors.numpy.load(content)
            metadata, _ = parse_header(content)
            stored = strict_json(metadata[self.key])
            about, digest = stored["about"], stored["digest"]
        except (SafetensorError, *MALFORMED):
            raise self.refusal(path) from None
        if digest not in (_digest(about, arrays, separators) for separators in (_SEPARATORS, _SPACED)):
            raise self.refusal(path)
        return about, arrays

    def refusal(self, path: Path) -> CheckpointError:
        """Return the error for a file that is damaged or of another type."""
        return CheckpointError(shown(path), f"this is not {self.what} of gpt, or it is damaged", hint=self.hint)


def _digest(
    about: Mapping[str, Any], arrays: Mapping[str, np.ndarray], separators: tuple[str, str] = _SEPARATORS
) -> str:
    """Return the SHA-256 of metadata and arrays, in hexadecimal."""
    digest = hashlib.sha256(canonical_json(about, separators).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def canonical_json(content: Any, separators: tuple[str, str] = _SEPARATORS) -> str:
    """Return `content` as JSON with sorted keys, so that equal contents give equal texts; by default without spaces."""
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=separators, allow_nan=False)
