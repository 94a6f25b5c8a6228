"""Read the numbers of safetensors files with numpy, which has no bfloat16. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

# the types that become float32
READABLE: Mapping[str, np.dtype] = MappingProxyType(
    {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
)
_AT_ONCE = 2**18  # numbers that are checked in a copy, which a cache holds


def widened(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Convert numbers that READABLE reads as `kind` to float32, which has each of them."""
    if dtype == "BF16":  # the upper half of a float32
        return np.left_shift(numbers, 16, dtype=np.uint32).view(np.float32)
    return numbers.astype(np.float32, copy=False)


def are_finite(numbers: np.ndarray, dtype: str) -> bool:
    """Return whether none of the numbers [N] is NaN or infinite."""
    if dtype == "F32":  # one pass each, and NaN passes through
        return not numbers.size or bool(np.isfinite(numbers.min()) and np.isfinite(numbers.max()))
    # such numbers have all bits of the exponent; a shift drops the sign
    least = {"F16": 0x7C00, "BF16": 0x7F80}[dtype] << 1
    bits = numbers.view(np.uint16)
    parts = (bits[start : start + _AT_ONCE] for start in range(0, len(bits), _AT_ONCE))
    return all((part << 1).max() < least for part in parts)
