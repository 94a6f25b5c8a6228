"""The panels of a picture as data: heat maps, and curves with errors. `draw_panels.py` draws panels."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class HeatMap(NamedTuple):
    """A heat map: numbers [rows, columns], NaN in cells without a number, and the range of the colours (low, high)."""

    title: str
    numbers: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    low: float = 0.0  # below 0, colours run from blue to red
    high: float = 1.0
    axis_labels: tuple[str, str] = ("layer", "head")  # of rows and columns
    errors: np.ndarray | None = None  # one standard error of each number, NaN where it has none
    texts: np.ndarray | None = None  # texts in the cells; None: the numbers, if the map is small
    decimals: int = 2  # of numbers below 1

    @property
    def labels(self) -> str:
        """All characters of the labels and the cell texts, from which the fonts are chosen."""
        cells = [] if self.texts is None else self.texts.ravel().tolist()
        return "".join([*self.rows, *self.columns, *cells]).replace("\n", "")


class PlotLine(NamedTuple):
    """A line of a panel: `values` at x positions `across`, with standard errors; a line without a label is grey."""

    label: str
    across: Sequence[float]
    values: Any
    errors: Any = None
    style: Mapping[str, Any] = {}


class Curves(NamedTuple):
    """A panel of lines over the x axis `x_label`; `ticks` name its positions 0, 1, ...; `limits` bound the y axis."""

    title: str
    lines: Sequence[PlotLine]
    x_label: str = "step"
    limits: tuple[float | None, float | None] = (None, None)
    log: bool = False
    ticks: Sequence[str] = ()


Panel = HeatMap | Curves
