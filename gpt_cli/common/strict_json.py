"""Parse untrusted JSON, and check numbers that a training has recorded. Needs no torch."""

import json
import math
from typing import Any

from gpt_cli.common.limits import FIGURE, JSON_PARTS, STEPS
from gpt_cli.errors import shown, visible

_LONGEST_SHOWN = 20  # characters of a number in an error
_SURELY_FINITE = 300  # characters; the largest float has 309 digits


def strict_json(text: str) -> Any:
    """Parse JSON; refuse repeated keys, numbers beyond the range of a float, and over JSON_PARTS commas and brackets.

    Raises ValueError, and RecursionError for JSON that is nested too deeply.
    """
    # an empty list takes three bytes here and a hundred in memory, an object eight here and four hundred
    if text.count(",") + text.count("[") + 8 * text.count("{") > JSON_PARTS:
        raise ValueError(f"it has more than {JSON_PARTS:,} parts")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            raise ValueError("a key is repeated")
        return content

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    def finite(number: str) -> float:
        if math.isinf(float(number)):
            raise ValueError(f"{visible(number, _LONGEST_SHOWN)} is more than a float can hold")
        return float(number)

    def whole(number: str) -> int:
        if len(number) > _SURELY_FINITE:
            finite(number)
        return int(number)

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse, parse_float=finite, parse_int=whole)


def plainly(error: Exception) -> str:
    """Return a sentence for users about an error in a JSON file, such as: it has no key "model"."""
    if isinstance(error, KeyError):
        return f"it has no key {shown(error.args[0])}"
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    if isinstance(error, RecursionError):
        return "its lists and objects are nested too deeply"
    return visible(error) if isinstance(error, ValueError) else "a value in it has the wrong type"


def figure(value: Any) -> float | None:
    """Return `value` as a float if it is a number from -1e100 to 1e100, such as a loss; None for a bool or NaN."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) <= FIGURE else None


def step_number(value: Any) -> int | None:
    """Return `value` if it can be the number of a training step, an int in 0..STEPS; else None."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and 0 <= value <= STEPS else None
