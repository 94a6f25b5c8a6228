"""What a user may ask for: stages of attention, layers and heads. Needs no torch."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

from gpt_cli.common.mistyped import full_width, half_width
from gpt_cli.errors import UsageError, shown

if TYPE_CHECKING:
    from gpt_cli.config import ModelConfig

Stage = Literal["weights", "scores", "queries", "keys", "values", "heads"]
STAGES: tuple[str, ...] = get_args(Stage)


def parse_selection(text: str | None, count: int, flag: str) -> tuple[int, ...]:
    """The numbers that `0,3-5` means, sorted; None means all of 0..count-1. Raises UsageError."""
    if text is None:
        return tuple(range(count))
    if wrong_mark := full_width(text):
        raise UsageError(flag, wrong_mark, hint=f"{flag} {shlex.quote(half_width(text))}")
    chosen: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 20:
            raise UsageError(flag, f"{shown(part)} is neither a number nor a range", hint=f"{flag} 0,3-5")
        low, high = int(first), int(last or first)
        if low > high:
            raise UsageError(flag, f"the range {shown(part)} runs backwards", hint=f"{flag} {high}-{low}")
        if high >= count:
            raise UsageError(flag, out_of_range(flag, part, count))
        chosen.update(range(low, high + 1))
    return tuple(sorted(chosen))


def out_of_range(flag: str, value: object, count: int) -> str:
    """The sentence for a layer or head that a model does not have: `flag` names which, `count` how many there are."""
    noun = flag.strip("-").removesuffix("s")
    return f"this model has {noun}s 0 to {count - 1}, so {shown(value)} is out of range"


def count_numbers(stages: Sequence[str], num_tokens: int, sizes: ModelConfig) -> int:
    """Number of values in the stages of one head."""
    widths = {"weights": num_tokens, "scores": num_tokens, "queries": sizes.query_size, "keys": sizes.query_size}
    return sum(num_tokens * widths.get(stage, sizes.value_size) for stage in stages)
