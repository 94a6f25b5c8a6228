"""Convert numbers of safetensors files to float32 with numpy, which has no bfloat16, and check them. Needs no torch."""

import numpy as np

# the types that become float32
READABLE = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
_AT_ONCE = 2**18  # numbers that are checked in a copy, which a cache holds


def widened(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Convert numbers of safetensors type `dtype`, an array of numpy type READABLE[dtype], exactly to float32."""
    if dtype == "BF16":  # the upper half of a float32
        return np.left_shift(numbers, 16, dtype=np.uint32).view(np.float32)
    return numbers.astype(np.float32, copy=False)


def are_finite(numbers: np.ndarray, dtype: str) -> bool:
    """Return whether none of the numbers [N] is NaN or infinite; `dtype` is their safetensors type, such as BF16."""
    parts = (numbers[start : start + _AT_ONCE] for start in range(0, len(numbers), _AT_ONCE))
    return all(np.isfinite(widened(part, dtype)).all() for part in parts)
