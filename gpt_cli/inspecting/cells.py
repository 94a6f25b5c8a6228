"""Texts in cells of CSV that a spreadsheet may open. Needs no torch."""

from __future__ import annotations

_SIGNS = "=+-@＝＋－＠"  # those that begin a formula, and their full-width forms
_SKIPPED = "\t\r\n"  # what spreadsheets may pass over in front of one


def inert(text: str) -> str:
    """A text as it is, or behind an apostrophe where a spreadsheet would compute it; a sign alone is no formula."""
    found = text.lstrip(_SKIPPED)
    return f"'{text}" if len(found) > 1 and found[0] in _SIGNS else text
