"""Tokens as labels: short, on one line, and visible."""

from __future__ import annotations

MAX_LABEL = 12  # characters


def label_of(token: str, limit: int | None = MAX_LABEL) -> str:
    """A token as a label of at most `limit` characters, with signs for line breaks and for white space alone."""
    if not token.strip():
        token = token.replace("\t", "⇥").replace(" ", "␣") or "∅"
    label = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in token.replace("\n", "↵"))
    return label if limit is None or len(label) <= limit else label[: limit - 1] + "…"
