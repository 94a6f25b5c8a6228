"""Attention as a picture: a grid of heads, layer by layer, with the tokens at its edges."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font

from gpt_cli.inspecting.dump import AttentionDump

MAX_LABEL = 12  # characters
_MAX_LABELS = 40  # along one edge
_LIKELY_CJK = re.compile(r"cjk|han|hei|song|ming|kai|fang|gothic|unicode|fallback|noto|yahei|pingfang", re.IGNORECASE)


def draw_png(dump: AttentionDump, notice: Callable[[str], object] = lambda _: None) -> bytes:
    """A PNG of all chosen heads: a row a layer, a column a head, each cell queries down and keys across.

    The square root of the weight is shown, so that small weights can be told from none; the colours of
    viridis grow lighter evenly, so that the picture can be read in grey. `notice` is told when no installed
    font has the characters of the labels.
    """
    num_layers, num_heads, num_tokens, _ = dump.weights.shape
    gap = max(1, num_tokens // 12)
    cell = num_tokens + gap
    # one image for the whole grid: a hundred axes would take seconds
    grid = np.full((num_layers * cell - gap, num_heads * cell - gap), np.nan, np.float32)
    visible = np.where(np.tri(num_tokens, dtype=bool), dump.weights, np.nan)
    for row in range(num_layers):
        for column in range(num_heads):
            top, left = row * cell, column * cell
            grid[top : top + num_tokens, left : left + num_tokens] = visible[row, column]

    labels, font = _labels(dump, notice)
    inches = _cell_inches(num_tokens, num_layers * num_heads)
    margin = 0.25 + 0.075 * max(map(_width, labels))
    width, height = num_heads * inches + margin + 0.9, num_layers * inches + margin + 0.5
    figure = Figure(figsize=(max(width, 3.5), height), dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((margin / width, margin / height, 1 - (margin + 0.9) / width, 1 - (margin + 0.5) / height))
    image = axes.imshow(grid, norm=PowerNorm(0.5, 0, 1), cmap="viridis", interpolation="nearest")
    _label_axes(axes, labels, font, (num_layers, num_heads), cell, inches)
    for row, layer in enumerate(dump.layers):
        for column, head in enumerate(dump.heads):
            axes.text(
                column * cell + num_tokens - 1, row * cell, f"L{layer} H{head}", ha="right", va="top", fontsize=7
            )  # fmt: skip
    for side in axes.spines.values():
        side.set_visible(False)
    bar = figure.add_axes((1 - 0.7 / width, margin / height, 0.12 / width, 1 - (margin + 0.5) / height))
    figure.colorbar(image, cax=bar, ticks=[0, 0.05, 0.25, 0.5, 1]).ax.tick_params(labelsize=7)
    axes.set_title("attention weights: rows look at columns", fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _cell_inches(num_tokens: int, num_maps: int) -> float:
    """The edge of one head's map: large for few heads, small enough that a grid of many stays a picture."""
    readable = max(1.2, 0.17 * min(num_tokens, _MAX_LABELS))
    return min(readable, 7.0 if num_maps == 1 else 3.2 if num_maps <= 16 else 1.5)


def _label_axes(
    axes: Axes, labels: Sequence[str], font: Path | None, grid: tuple[int, int], cell: int, inches: float
) -> None:
    """Token labels along the left edge of every row and the foot of every column, as many as stay readable."""
    num_tokens = len(labels)
    every = max(1, -(-num_tokens // max(1, min(_MAX_LABELS, int(inches / 0.11)))))
    shown = range(0, num_tokens, every)
    properties = font_manager.FontProperties(fname=str(font) if font else None, size=7)
    for set_ticks, count in zip((axes.set_yticks, axes.set_xticks), grid, strict=True):
        places = [start * cell + i for start in range(count) for i in shown]
        set_ticks(places, [labels[i] for _ in range(count) for i in shown])
    for label in axes.get_xticklabels() + axes.get_yticklabels():
        label.set_fontproperties(properties)
        label.set_parse_math(False)
    for label in axes.get_xticklabels():
        label.set_rotation(90)
    axes.tick_params(length=0, pad=2)


def _labels(dump: AttentionDump, notice: Callable[[str], object]) -> tuple[list[str], Path | None]:
    """The tokens as labels and the font to write them in; ids where no installed font has their characters."""
    labels = [label_of(token) for token in dump.tokens]
    needed = {ord(character) for label in labels for character in label}
    font = find_font(needed)
    if font is not None:
        return labels, font
    missing = "".join(sorted({chr(point) for point in needed if point > 0x7F})[:10])
    notice(f"no installed font has {missing}; labels are token ids (Debian: apt install fonts-noto-cjk)")
    return [str(token) for token in dump.token_ids], find_font({ord("0")})


def label_of(token: str) -> str:
    """A token as a short label: a space as ␣ where it stands alone or leads, a line break as ↵."""
    if not token.strip():
        return token.replace("\n", "↵").replace("\t", "⇥").replace(" ", "␣") or "∅"
    label = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in token.replace("\n", "↵"))
    return label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…"


def find_font(needed: Iterable[int]) -> Path | None:
    """An installed font that has all these characters (code points): matplotlib's own, else any other."""
    own = Path(font_manager.findfont("DejaVu Sans"))
    if _has(own, needed):
        return own
    installed = [Path(path) for path in font_manager.findSystemFonts()]
    installed.sort(key=lambda path: (not _LIKELY_CJK.search(path.name), path.name))
    return next((path for path in installed if _has(path, needed)), None)


def _has(font: Path, needed: Iterable[int]) -> bool:
    try:
        return set(needed) <= FT2Font(str(font)).get_charmap().keys()
    except (OSError, RuntimeError):  # a damaged font, or one that FreeType does not read
        return False


def _width(label: str) -> int:
    return sum(2 if ord(c) > 0x2E80 else 1 for c in label)
