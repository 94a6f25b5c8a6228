"""Attention as a picture: a grid of heads, layer by layer, with the tokens at its edges."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font

from gpt_cli.inspecting.dump import AttentionDump
from gpt_cli.inspecting.labels import label_of

_READABLE_NUMBER = 0.28  # inches: the edge of a cell that has room for one
_LIKELY_CJK = re.compile(r"cjk|han|hei|song|ming|kai|fang|gothic|unicode|fallback|noto|yahei|pingfang", re.IGNORECASE)


def draw(dump: AttentionDump, notice: Callable[[str], object] = lambda _: None, *, kind: str = "png") -> bytes:
    """A picture, png or svg, of all chosen heads, each with queries down and keys across.

    Of many heads a grid, a row a layer, a column a head; of one head of many layers a strip, layer after layer; of one
    head alone a large map, with its numbers where they can be read. The square root of the weight is shown, so
    that small weights can be told from none; the colours of viridis grow lighter evenly, so that the picture can
    be read in grey. `notice` is told when no installed font has a character of the labels.
    """
    num_layers, num_heads, num_tokens, _ = dump.weights.shape
    num_maps = num_layers * num_heads
    num_columns = num_heads if num_heads > 1 else _strip(num_layers)
    num_rows = -(-num_maps // num_columns)
    gap = max(1, num_tokens // 12)
    cell = num_tokens + gap
    # one image for the whole grid: a hundred axes would take seconds
    grid = np.full((num_rows * cell - gap, num_columns * cell - gap), np.nan, np.float32)
    visible = np.where(np.tri(num_tokens, dtype=bool), dump.weights, np.nan).reshape(num_maps, num_tokens, num_tokens)
    corners = [(number // num_columns * cell, number % num_columns * cell) for number in range(num_maps)]
    for (top, left), of_head in zip(corners, visible, strict=True):
        grid[top : top + num_tokens, left : left + num_tokens] = of_head

    labels, fonts = _labels(dump, notice)
    inches = _cell_inches(num_tokens, num_maps)
    margin = 0.25 + 0.075 * max(map(_width, labels))
    width, height = num_columns * inches + margin + 0.9, num_rows * inches + margin + 0.5
    # a dot for each weight where that is no wall of dots; a picture has fewer than 2^16 on each side
    dpi = min(max(110, min(num_tokens / inches, 300)), 60_000 / max(width, height))
    figure = Figure(figsize=(max(width, 3.5), height), dpi=dpi)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((margin / width, margin / height, 1 - (margin + 0.9) / width, 1 - (margin + 0.5) / height))
    image = axes.imshow(
        grid, norm=PowerNorm(0.5, 0, 1), cmap="viridis", interpolation="none" if kind == "svg" else "nearest"
    )
    _label_axes(axes, labels, fonts, (num_rows, num_columns), cell, inches)
    names = [f"L{layer} H{head}" for layer in dump.layers for head in dump.heads]
    for (top, left), name in zip(corners, names, strict=True):
        axes.text(left + num_tokens - 1, top, name, ha="right", va="top", fontsize=7)
    if num_maps == 1 and inches / num_tokens >= _READABLE_NUMBER:
        for query, row in enumerate(visible[0]):
            for key, weight in enumerate(row[: query + 1]):
                ink = "black" if weight > 0.2 else "white"
                number = f"{weight:.2f}".removeprefix("0")
                axes.text(key, query, number, ha="center", va="center", fontsize=6, color=ink)
    for side in axes.spines.values():
        side.set_visible(False)
    bar = figure.add_axes((1 - 0.7 / width, margin / height, 0.12 / width, 1 - (margin + 0.5) / height))
    figure.colorbar(image, cax=bar, ticks=[0, 0.05, 0.25, 0.5, 1]).ax.tick_params(labelsize=7)
    axes.set_title("attention weights: rows look at columns", fontsize=8)
    buffer = io.BytesIO()
    # the same picture gives the same bytes: no date, and names of parts that are no random numbers
    with matplotlib.rc_context({"svg.hashsalt": "gpt"}):
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def _strip(num_layers: int) -> int:
    """How many maps stand beside each other in a strip of layers: few, so that it fits a page, and evenly many."""
    num_rows = -(-num_layers // 6)
    return -(-num_layers // num_rows)


def _cell_inches(num_tokens: int, num_maps: int) -> float:
    """The edge of one head's map: large for few heads, small enough that a grid of many stays a picture."""
    if num_maps == 1:
        return min(max(1.2, 0.32 * num_tokens), 8.0)
    readable = max(1.2, 0.17 * num_tokens)
    return min(readable, 3.2 if num_maps <= 16 else 1.5)


def _label_axes(
    axes: Axes, labels: Sequence[str], fonts: list[str], grid: tuple[int, int], cell: int, inches: float
) -> None:
    """Token labels along the left edge of every row and the foot of every column, as many as stay readable."""
    num_tokens = len(labels)
    every = max(1, -(-num_tokens // max(1, int(inches / 0.11))))
    shown = range(0, num_tokens, every)
    properties = font_manager.FontProperties(family=fonts, size=7)
    for set_ticks, count in zip((axes.set_yticks, axes.set_xticks), grid, strict=True):
        places = [start * cell + i for start in range(count) for i in shown]
        set_ticks(places, [labels[i] for _ in range(count) for i in shown])
    for label in axes.get_xticklabels() + axes.get_yticklabels():
        label.set_fontproperties(properties)
        label.set_parse_math(False)
    for label in axes.get_xticklabels():
        label.set_rotation(90)
    axes.tick_params(length=0, pad=2)


def _labels(dump: AttentionDump, notice: Callable[[str], object]) -> tuple[list[str], list[str]]:
    """The tokens as labels and the fonts to write them in; ids for those whose characters no installed font has."""
    labels = [label_of(token) for token in dump.tokens]
    fonts, missing = find_fonts({character for label in labels for character in label})
    if missing:
        told = "".join(sorted(missing)[:10])
        notice(f"no installed font has {told}; such tokens are labelled by id (Debian: apt install fonts-noto-cjk)")
    pairs = zip(labels, dump.token_ids, strict=True)
    return [str(token) if set(label) & missing else label for label, token in pairs], fonts


def find_fonts(characters: set[str]) -> tuple[list[str], set[str]]:
    """Names of fonts that together have the characters, matplotlib's own first; and characters that none has."""
    fonts = ["DejaVu Sans"]
    missing = characters - _characters(Path(font_manager.findfont(fonts[0])))
    if not missing:
        return fonts, missing
    installed = [Path(path) for path in font_manager.findSystemFonts()]
    installed.sort(key=lambda path: (not _LIKELY_CJK.search(path.name), path.name))
    for path in installed:
        # fonts of coloured emoji cannot be drawn
        if "emoji" not in path.name.lower() and missing & (has := _characters(path)):
            font_manager.fontManager.addfont(path)
            fonts.append(font_manager.FontProperties(fname=path).get_name())
            missing = missing - has
    return fonts, missing


def _characters(font: Path) -> set[str]:
    """The characters that a font has; none for one that is damaged or that FreeType does not read."""
    try:
        return {chr(point) for point in FT2Font(str(font)).get_charmap()}
    except (OSError, RuntimeError):
        return set()


def _width(label: str) -> int:
    return sum(2 if ord(c) > 0x2E80 else 1 for c in label)
