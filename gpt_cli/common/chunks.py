"""Format long texts piece by piece, so that none is in memory as a whole. Needs no torch."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

_LARGE = 2**16  # characters; smaller pieces would take more system calls


def gathered(pieces: Iterable[str], least: int = _LARGE) -> Iterator[str]:
    """Join the pieces of a text into pieces of at least `least` characters; only the last may be shorter."""
    joined, length = list[str](), 0
    for piece in pieces:
        joined.append(piece)
        length += len(piece)
        if length >= least:
            yield "".join(joined)
            joined, length = [], 0
    yield "".join(joined)


def json_pieces(content: Any, count: Callable[[int], object] = lambda _: None) -> Iterator[str]:
    """Yield the JSON text of `content` in pieces; arrays become lists, and minus infinity in arrays becomes null.

    `count` receives 1 after each row of an array of two or more dimensions. Other infinities and NaN raise ValueError.
    """
    if isinstance(content, Mapping):
        for number, (key, value) in enumerate(content.items()):
            yield f"{', ' if number else '{'}{json.dumps(key, ensure_ascii=False)}: "
            yield from json_pieces(value, count)
        yield "}" if content else "{}"
    elif isinstance(content, np.ndarray) and content.ndim == 1:
        numbers = content.tolist()
        if -np.inf in numbers:
            numbers = [None if number == -np.inf else number for number in numbers]
        yield json.dumps(numbers, allow_nan=False)
    elif isinstance(content, np.ndarray | Sequence) and not isinstance(content, str):
        for number, value in enumerate(content):
            yield ", " if number else "["
            yield from json_pieces(value, count)
            if isinstance(value, np.ndarray) and value.ndim == 1:
                count(1)
        yield "]" if len(content) else "[]"
    else:
        yield json.dumps(content, ensure_ascii=False, allow_nan=False)
