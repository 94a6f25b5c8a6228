"""Attention in a terminal: one map of shaded cells, with the tokens beside it."""

from __future__ import annotations

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from gpt_cli.inspecting.dump import AttentionDump
from gpt_cli.inspecting.labels import label_of

_SHADES = " ░▒▓█"  # readable without colour
_MAX_LABEL = 14  # cells; a label of Chinese characters may be wider
_MAX_MAPS = 4


def maps_to_draw(dump: AttentionDump) -> dict[str, np.ndarray]:
    """Title -> weights [T, T]: each chosen head, or their mean where they are more than a screen holds."""
    count = len(dump.layers) * len(dump.heads)
    if count > _MAX_MAPS:
        return {f"mean of {count} heads (choose with --layers and --heads)": dump.weights.mean(axis=(0, 1))}
    return {
        f"layer {layer} head {head}": dump.weights[row, column]
        for row, layer in enumerate(dump.layers)
        for column, head in enumerate(dump.heads)
    }


def draw_map(tokens: tuple[str, ...], weights: np.ndarray, width: int, *, colour: bool) -> tuple[Text, int]:
    """The map as text `width` cells wide at most, and how many of the last tokens it shows.

    Each row is a token, each cell a token it may look at, darker or brighter with the square root of the weight.
    """
    labels = [label_of(token) for token in tokens]
    label_width = min(_MAX_LABEL, max(map(cell_len, labels)))
    room = max(1, width - label_width - 1)
    num_shown = min(len(tokens), room)
    cell = 2 if 2 * num_shown <= room else 1
    text = Text(no_wrap=True)
    first = len(tokens) - num_shown
    for query in range(first, len(tokens)):
        text.append(" " * max(0, label_width - cell_len(labels[query])))
        text.append(set_cell_size(labels[query], min(label_width, cell_len(labels[query]))) + " ")
        for key in range(first, query + 1):
            strength = float(np.sqrt(weights[query, key]))
            if colour:
                text.append(" " * cell, style=f"on {_colour(strength)}")
            else:
                text.append(_SHADES[min(len(_SHADES) - 1, int(strength * len(_SHADES)))] * cell)
        text.append("\n")
    return text, num_shown


def _colour(strength: float) -> str:
    """From dark blue to yellow, growing lighter evenly."""
    red, green, blue = (round(low + (high - low) * strength) for low, high in ((20, 253), (20, 231), (80, 37)))
    return f"#{red:02x}{green:02x}{blue:02x}"
