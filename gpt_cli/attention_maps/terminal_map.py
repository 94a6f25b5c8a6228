"""Attention in a terminal: a map of shaded cells, with the tokens beside it."""

from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from gpt_cli.attention_maps.patterns import AttentionDump
from gpt_cli.common.drawing.token_labels import colour_of, label_of
from gpt_cli.common.tables import right_aligned

_SHADES = " ░▒▓█"  # readable without colour
_MAX_LABEL = 14  # cells; a label of Chinese characters may be wider
_MAX_DOWNWARDS = 6  # characters of a label below its column
_MAX_MAPS = 4
_SCALE_CELLS = 16


def maps_to_draw(dump: AttentionDump) -> dict[str, np.ndarray]:
    """Return title -> weights [T, T]: a map for each head, or, for more than 4 heads, a single map of their mean."""
    count = len(dump.layers) * len(dump.heads)
    if count > _MAX_MAPS:
        return {f"mean of {count} heads (choose with --layers and --heads)": dump.weights.mean(axis=(0, 1))}
    return {
        f"layer {layer} head {head}": dump.weights[row, column]
        for row, layer in enumerate(dump.layers)
        for column, head in enumerate(dump.heads)
    }


def draw_text_map(tokens: tuple[str, ...], weights: np.ndarray, width: int, *, colour: bool) -> tuple[Text, int]:
    """Draw weights [T, T] as text, at most `width` cells wide; return it, and how many tokens (the last ones) it shows.

    Rows are queries, with labels; columns are keys. The shade follows the square root of the weight. Columns are two
    cells wide, with labels, if all fit; else one cell wide and, in colour, rows are half a cell high.
    """
    labels = [label_of(token) for token in tokens]
    label_width = min(_MAX_LABEL, max(map(cell_len, labels)))
    num_cells = max(1, width - label_width - 1)
    if 2 * len(tokens) <= num_cells:
        return _draw_lines(labels, weights, label_width, 0, colour=colour, cell=2), len(tokens)
    if not colour:
        first = max(0, len(tokens) - num_cells)
        return _draw_lines(labels, weights, label_width, first, colour=colour, cell=1), len(tokens) - first
    pairs = [a + b for a, b in zip(labels[::2], [*labels[1::2], ""], strict=False)]
    label_width = min(2 * _MAX_LABEL, width // 3, max(map(cell_len, pairs)))
    num_shown = min(len(tokens), max(2, width - label_width - 1))
    first = -(-(len(tokens) - num_shown) // 2) * 2  # even, so that a pair begins
    return _draw_halves(pairs, weights, label_width, first), len(tokens) - first


def colour_scale(meaning: str) -> Text:
    """Draw a line of text with the colours of weights from 0 to 1, followed by `meaning`."""
    text = Text("0 ", no_wrap=True)
    for step in range(_SCALE_CELLS):
        text.append(" ", style=f"on {colour_of((step / (_SCALE_CELLS - 1)) ** 2)}")
    return text.append(f" 1  {meaning}")


def _draw_lines(
    labels: Sequence[str], weights: np.ndarray, label_width: int, first: int, *, colour: bool, cell: int
) -> Text:
    """Draw a line for each token from `first` on; label the columns too, downwards, if they are `cell` = 2 wide."""
    text = Text(no_wrap=True)
    for query in range(first, len(labels)):
        text.append(right_aligned(labels[query], label_width) + " ")
        for key in range(first, query + 1):
            if colour:
                text.append(" " * cell, style=f"on {colour_of(weights[query, key])}")
            else:
                shade = int(np.sqrt(weights[query, key]) * len(_SHADES))
                text.append(_SHADES[min(len(_SHADES) - 1, shade)] * cell)
        text.append("\n")
    if cell == 2:
        downwards = [label_of(label.strip() or label, _MAX_DOWNWARDS) for label in labels]
        for row in range(max(map(len, downwards))):
            letters = "".join(set_cell_size(label[row : row + 1], cell) for label in downwards)
            text.append((" " * (label_width + 1) + letters).rstrip() + "\n")
    return text


def _draw_halves(pairs: Sequence[str], weights: np.ndarray, label_width: int, first: int) -> Text:
    """Draw the tokens from `first` on, two per line with a label of `pairs`, in upper and lower halves of cells."""
    text = Text(no_wrap=True)
    num_tokens = len(weights)
    for upper in range(first, num_tokens, 2):
        text.append(right_aligned(pairs[upper // 2], label_width) + " ")
        lower = upper + 1 if upper + 1 < num_tokens else None
        for key in range(first, upper + 1):
            style = colour_of(weights[upper, key])
            if lower is not None:
                style += f" on {colour_of(weights[lower, key])}"
            text.append("▀", style=style)
        if lower is not None:
            text.append("▄", style=colour_of(weights[lower, lower]))
        text.append("\n")
    return text
