"""Correct mistyped words: find the nearest name, and replace marks of a Chinese keyboard by ASCII."""

import difflib
from collections.abc import Callable, Iterable
from functools import lru_cache

from gpt_cli.errors import shown

_LIKE, _LIKE_OF_SYLLABLES, _EQUAL = 0.7, 0.5, 0.85  # 1 is equal
# what a Chinese keyboard types for the marks of flags, lists and YAML
_HALF_WIDTH = {0xFEE0 + code: code for code in range(0x21, 0x7F)} | dict(
    zip(map(ord, "　、。—–−“”‘’【】"), " ,.---\"\"''[]", strict=True)
)
DASHES = "—–−"


def nearest(typed: str, names: Iterable[str], fits: Callable[[str], bool] = lambda _: True) -> str | None:
    """Return the one of `names` most like `typed`; None if none is similar.

    A name must satisfy `fits`, unless it is nearly equal to `typed`. 70% of all characters must match, or only 50% if
    `typed` is not ASCII, because one Chinese character may be a whole syllable.
    """
    names = [*names]
    if close := difflib.get_close_matches(typed, names, n=1, cutoff=_EQUAL):
        return close[0]
    cutoff = _LIKE if typed.isascii() else _LIKE_OF_SYLLABLES
    return next(iter(difflib.get_close_matches(typed, filter(fits, names), n=1, cutoff=cutoff)), None)


@lru_cache(maxsize=8)  # suggestions ask about one text for every name
def half_width(text: str) -> str:
    """Replace full-width marks, letters and digits, and long dashes, by ASCII."""
    return text.translate(_HALF_WIDTH)


def full_width(text: object) -> str | None:
    """Return a sentence about the first long dash or full-width character of a text; None if the text has neither."""
    characters = text if isinstance(text, str) else ""
    mark = next((character for character in characters if ord(character) in _HALF_WIDTH), None)
    if mark is None:
        return None
    kind = (
        'a dash; type the hyphen "-"' if mark in DASHES else f"a full-width character; type {shown(half_width(mark))}"
    )
    return f"{shown(mark)} in {shown(text, 40)} is {kind}"
