"""Parse the user's choice of intermediate attention tensors (stages), layers and heads. Needs no torch."""

from __future__ import annotations

from typing import Literal, get_args

from gpt_cli.common.mistyped import full_width, half_width
from gpt_cli.errors import UsageError, shown

Stage = Literal["weights", "scores", "queries", "keys", "values", "heads"]
STAGES: tuple[str, ...] = get_args(Stage)


def parse_selection(text: str | None, count: int, field: str) -> tuple[int, ...]:
    """Parse a choice such as `0,3-5` to sorted numbers; None and `all` mean all of 0..count-1. Raises UsageError."""
    if text in (None, "all"):
        return tuple(range(count))
    where = f"‹{field}›"
    if wrong_mark := full_width(text):
        raise UsageError(where, wrong_mark, hint=f"‹{field}={half_width(text)}›")
    chosen: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 20:
            raise UsageError(where, f"{shown(part)} is neither a number nor a range", hint=f"‹{field}=0,3-5›")
        low, high = int(first), int(last or first)
        if low > high:
            raise UsageError(where, f"the range {shown(part)} runs backwards", hint=f"‹{field}={high}-{low}›")
        if high >= count:
            raise UsageError(where, out_of_range(field, part, count))
        chosen.update(range(low, high + 1))
    return tuple(sorted(chosen))


def out_of_range(field: str, value: object, count: int) -> str:
    """Return the error sentence for a layer or head out of range; `field` is layers or heads, `count` their number."""
    return f"this model has {field.removesuffix('s')}s 0 to {count - 1}, so {shown(value)} is out of range"
