"""Format tokens as labels and as cells of CSV, and weights as colours. Needs no torch."""

import math
import unicodedata
from dataclasses import dataclass
from itertools import accumulate

MAX_LABEL = 12  # characters
_SIGNS = "=+-@＝＋－＠"  # signs that begin a formula, and their full-width forms
_SKIPPED = "\t\r\n"  # characters that spreadsheets may skip before a formula
# viridis in sixteen steps; it grows lighter evenly, so it is readable in grey too (S. van der Walt, N. Smith, 2015)
_VIRIDIS = """
440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c
1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725
"""
STEPS = tuple(_VIRIDIS.split())
# the colours of M. Okabe and K. Ito, for colour-blind readers, that are visible on both black and white
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


@dataclass(frozen=True)
class Origin:
    """The origin of a picture or a data file: the checkpoint's path and step, and the text that the model read."""

    checkpoint: str
    step: int
    prompt: str


def label_of(token: str, limit: int | None = MAX_LABEL) -> str:
    """Return a token as a label of at most `limit` characters; line breaks become ↵, and spaces of a blank token ␣."""
    if not token.strip():
        token = token.replace("\t", "⇥").replace(" ", "␣") or "∅"
    if unicodedata.category(token[0]).startswith("M"):
        token = f"◌{token}"  # a combining mark alone would be invisible
    parts = [c if c.isprintable() else _escaped(c) for c in token.replace("\n", "↵")]
    if limit is None or sum(map(len, parts)) <= limit:
        return "".join(parts)
    return "".join(part for part, end in zip(parts, accumulate(map(len, parts)), strict=True) if end < limit) + "…"


def _escaped(character: str) -> str:
    return f"\\x{ord(character):02x}" if character < "\u0100" else character.encode("unicode_escape").decode()


def quoted(token: str, limit: int = MAX_LABEL) -> str:
    """Return a token's label in quotes."""
    return f'"{label_of(token, limit)}"'


def inert_cell(text: str) -> str:
    """Return the CSV cell of a text; an apostrophe precedes what a spreadsheet would compute, such as =1+1."""
    visible_part = text.lstrip(_SKIPPED)
    return f"'{text}" if len(visible_part) > 1 and visible_part[0] in _SIGNS else text


def colour_of(weight: float) -> str:
    """Return the viridis colour, such as #fde725, at the square root of a weight in 0..1."""
    position = math.sqrt(weight) * (len(STEPS) - 1)
    step = min(len(STEPS) - 2, int(position))
    low, high = bytes.fromhex(STEPS[step]), bytes.fromhex(STEPS[step + 1])
    return "#" + bytes(round(a + (b - a) * (position - step)) for a, b in zip(low, high, strict=True)).hex()


def width_of(label: str) -> int:
    """Return the display width of a label; a wide character, such as a Chinese one, counts as two."""
    return sum(2 if ord(c) > 0x2E80 else 1 for c in label)
