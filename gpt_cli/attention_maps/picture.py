"""Draw attention as a picture: a grid with a map for each head, a row for each layer, and tokens at the edges."""

from collections.abc import Sequence

import numpy as np

from gpt_cli.attention_maps.file_formats import DOTS_PER_INCH, GAP, MOST_DOTS, columns_of, map_inches, tokens_per_dot
from gpt_cli.attention_maps.patterns import AttentionDump
from gpt_cli.common.drawing.canvas import (
    Axes,
    Figure,
    PowerNorm,
    as_file,
    default_style,
    find_fonts,
    font_manager,
    fonts_for,
    remark_on_missing,
)
from gpt_cli.common.drawing.draw_panels import write_origin
from gpt_cli.common.drawing.token_labels import label_of, width_of
from gpt_cli.common.host import Notify, ignored
from gpt_cli.common.language import language, say

_READABLE_NUMBER = 0.28  # inches: the edge of a cell that a number fits in
_FOOTER = 0.3  # inches, for two lines


@default_style({})
def draw(dump: AttentionDump, notice: Notify = ignored, *, kind: str = "png") -> bytes:
    """Draw a map of attention weights for each head of `dump`, queries as rows, keys as columns; return a file's bytes.

    `kind` is png, svg or pdf. The maps form a grid with a row for each layer, or, if each layer has one map, with up to
    6 maps in a row. A single map is large, and shows weights as numbers if they are readable. Colours show the square
    root of a weight, so that small weights differ visibly from zero. `notice` receives a line if no installed font has
    a character of the labels, or if the text has too many tokens to draw a dot for each weight.
    """
    num_layers, num_heads, num_tokens, _ = dump.weights.shape
    num_maps = num_layers * num_heads
    num_columns = columns_of(num_layers, num_heads)
    num_rows = -(-num_maps // num_columns)
    each = tokens_per_dot(num_tokens, num_layers, num_heads)
    if each > 1:
        notice(f"the map has fewer pixels than tokens: each pixel shows the largest of {each} x {each} weights")
    size, gap = -(-num_tokens // each), max(1, num_tokens // each // GAP)
    cell = size + gap
    # one image for the whole grid: a hundred axes would take seconds
    grid = np.full((num_rows * cell - gap, num_columns * cell - gap), np.nan, np.float32)
    corners = [(number // num_columns * cell, number % num_columns * cell) for number in range(num_maps)]
    for (top, left), of_head in zip(corners, dump.weights.reshape(num_maps, num_tokens, num_tokens), strict=True):
        grid[top : top + size, left : left + size] = np.where(np.tri(size, dtype=bool), largest(of_head, each), np.nan)

    labels, fonts, missing = _labels(dump, notice)
    inches = map_inches(num_tokens, num_maps)
    margin = 0.25 + 0.075 * max(map(width_of, labels))
    foot = margin + _FOOTER
    width, height = max(num_columns * inches + margin + 0.9, 3.5), num_rows * inches + foot + 0.5
    # one dot for each weight, if the picture then has at most DOTS_PER_INCH and MOST_DOTS
    dpi = min(max(110, min(num_tokens / inches, DOTS_PER_INCH)), MOST_DOTS / max(width, height))
    figure = Figure(figsize=(width, height), dpi=dpi)
    axes = figure.add_axes((margin / width, foot / height, 1 - (margin + 0.9) / width, 1 - (foot + 0.5) / height))
    interpolation = "none" if kind == "svg" else "nearest"
    image = axes.imshow(grid, norm=PowerNorm(0.5, 0, 1), cmap="viridis", interpolation=interpolation)
    _label_axes(axes, labels, fonts, (num_rows, num_columns), cell, inches, each)
    names = [f"L{layer} H{head}" for layer in dump.layers for head in dump.heads]
    for (top, left), name in zip(corners, names, strict=True):
        axes.text(left + size - 1, top, name, ha="right", va="top", fontsize=7)
    if num_maps == 1 and inches / num_tokens >= _READABLE_NUMBER:
        for query, key in np.argwhere(np.tri(num_tokens)).tolist():
            weight = dump.weights[0, 0, query, key]
            ink = "black" if weight > 0.19 else "white"
            axes.text(key, query, f"{weight:.2f}".removeprefix("0"), ha="center", va="center", fontsize=6, color=ink)
    axes.spines[:].set_visible(False)
    bar = figure.add_axes((1 - 0.7 / width, foot / height, 0.12 / width, 1 - (foot + 0.5) / height))
    figure.colorbar(image, cax=bar, ticks=[0, 0.05, 0.25, 0.5, 1]).ax.tick_params(labelsize=7)
    words, spoken = fonts_for(language(), notice)
    axes.set_title(say("attention weights: rows look at columns", spoken), fontsize=8, fontfamily=words)
    write_origin(figure, dump.origin, [*fonts, *words], missing, spoken)
    return as_file(figure, kind)


def largest(weights: np.ndarray, each: int) -> np.ndarray:
    """Max-pool weights, `each` x `each`, so that thin lines stay visible: [T, T] -> [T / each, T / each] rounded up."""
    if each == 1:
        return weights
    starts = np.arange(0, len(weights), each)
    return np.maximum.reduceat(np.maximum.reduceat(weights, starts, axis=0), starts, axis=1)


def _label_axes(
    axes: Axes, labels: Sequence[str], fonts: list[str], grid: tuple[int, int], cell: int, inches: float, each: int
) -> None:
    """Write token labels to the left of every row of maps and below every column, as many as stay readable.

    `grid` is (rows, columns) of maps. A map plus gap is `cell` dots, about `inches` inches; a dot covers `each` tokens.
    """
    num_tokens = len(labels)
    every = max(1, -(-num_tokens // max(1, int(inches / 0.11))))
    shown = range(0, num_tokens, every)
    properties = font_manager.FontProperties(family=fonts, size=7)
    downwards = ["\n".join(label) if _is_upright(label) else label for label in labels]
    for set_ticks, texts, count in zip((axes.set_yticks, axes.set_xticks), (labels, downwards), grid, strict=True):
        ticks = [start * cell + i // each for start in range(count) for i in shown]
        set_ticks(ticks, [texts[i] for i in shown] * count, fontproperties=properties, parse_math=False)
    for number, label in enumerate(axes.get_xticklabels()):
        if not _is_upright(labels[shown[number % len(shown)]]):
            label.set_rotation(90)
        label.set_linespacing(1.0)
    axes.tick_params(length=0, pad=2)


def _labels(dump: AttentionDump, notice: Notify) -> tuple[list[str], list[str], set[str]]:
    """Return a label for each token, the fonts for the labels, and the characters that no installed font has.

    A token's label is its text, or its id if no font has a character of its text. `notice` receives what fonts lack.
    """
    labels = [label_of(token) for token in dump.tokens]
    fonts, missing = find_fonts({*"".join(labels), *label_of(dump.origin.prompt + dump.origin.checkpoint, None)})
    in_labels = not missing.isdisjoint("".join(labels))
    remark_on_missing(missing, notice, "; the picture shows ids instead of these tokens" if in_labels else "")
    pairs = zip(labels, dump.token_ids, strict=True)
    return [str(token) if set(label) & missing else label for label, token in pairs], fonts, missing


def _is_upright(label: str) -> bool:
    """Return whether a label below a column needs no rotation: one character, or Chinese text written downwards."""
    return len(label) == 1 or all(ord(c) > 0x2E80 for c in label)
