"""Everything of matplotlib that this program uses: new figures, and figures as bytes of files."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Hide matplotlib's warnings in the context, such as those about its font search or an unwritable home folder."""
    logger = logging.getLogger("matplotlib")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


with without_warnings():
    from matplotlib import colormaps, font_manager, rc_context
    from matplotlib.axes import Axes
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure
    from matplotlib.ft2font import FT2Font
    from matplotlib.lines import Line2D
    from matplotlib.rcsetup import cycler
    from matplotlib.text import Text
    from matplotlib.ticker import LogFormatter, MaxNLocator

__all__ = [
    "Axes", "FT2Font", "Figure", "Line2D", "LogFormatter", "MaxNLocator", "PowerNorm", "Text", "as_file",
    "colormaps", "cycler", "font_manager", "new_figure", "rc_context", "without_warnings",
]  # fmt: skip


def new_figure(width: float, height: float, dpi: float, *, constrained: bool = False) -> Figure:
    """Return an empty figure of `width` x `height` inches at `dpi` dots per inch, perhaps with `constrained` layout."""
    return Figure(figsize=(width, height), dpi=dpi, layout="constrained" if constrained else None)


def as_file(figure: Figure, kind: str) -> bytes:
    """Return a figure as the bytes of a file of type `kind`; equal figures give equal bytes: no dates, no random ids.

    SVG stores words as paths. PDF stores words as text: in TrueType fonts, which publishers ask for, or as Type 3 if a
    text lists several fonts, because Chinese fonts may not be TrueType.
    """
    buffer, dates = io.BytesIO(), {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    others = any(len({*text.get_fontfamily()}) > 1 for text in figure.findobj(Text))
    with rc_context({"svg.hashsalt": "gpt", "pdf.fonttype": 3 if others else 42}), without_warnings():
        figure.savefig(buffer, format=kind, metadata=dates.get(kind))
    return buffer.getvalue()
