"""How large the maps of a picture are, in inches and in dots. Needs neither torch nor matplotlib."""

from __future__ import annotations

MOST_DOTS = 60_000  # a picture has fewer than 2^16 on each side
DOTS_PER_INCH = 300  # at most
GAP = 12  # between maps is this part of one


def map_inches(num_tokens: int, num_maps: int) -> float:
    """The edge of one head's map: large for few heads, small enough that a grid of many stays a picture."""
    if num_maps == 1:
        return min(max(1.2, 0.32 * num_tokens), 8.0)
    readable = max(1.2, 0.17 * num_tokens)
    return min(readable, 3.2 if num_maps <= 16 else 1.5)


def columns_of(num_layers: int, num_heads: int) -> int:
    """How many maps a row of a picture has: the heads of a layer, or of a strip of layers few, so that it fits a page.

    Each row of a strip has about as many.
    """
    return num_heads if num_heads > 1 else -(-num_layers // -(-num_layers // 6))


def most_dots(num_layers: int, num_heads: int, inches: float) -> int:
    """How many dots the edge of a map has room for."""
    num_maps, num_columns = num_layers * num_heads, columns_of(num_layers, num_heads)
    dots = min(DOTS_PER_INCH * inches, MOST_DOTS / max(num_columns, -(-num_maps // num_columns)))
    return max(1, int(dots if num_maps == 1 else dots * GAP / (GAP + 1)))


def tokens_per_dot(num_tokens: int, num_layers: int, num_heads: int) -> int:
    """1 where a map has a dot for each weight; for longer texts a dot stands for so many tokens each way."""
    inches = map_inches(num_tokens, num_layers * num_heads)
    return -(-num_tokens // most_dots(num_layers, num_heads, inches))


def num_dots(num_tokens: int, num_layers: int, num_heads: int) -> int:
    """About how many dots a map takes while it is drawn."""
    inches = map_inches(num_tokens, num_layers * num_heads)
    return min(num_tokens, most_dots(num_layers, num_heads, inches)) ** 2
