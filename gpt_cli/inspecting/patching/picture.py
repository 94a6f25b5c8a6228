"""What patches recover as a picture: maps of layers by positions, and of layers by heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gpt_cli.callbacks import Notify, ignored
from gpt_cli.drawing.canvas import Axes, Figure
from gpt_cli.drawing.labels import label_of
from gpt_cli.inspecting.dump import Origin
from gpt_cli.inspecting.heads.columns import Row
from gpt_cli.inspecting.patching.words import MOST_TOKENS, place_of, share_of
from gpt_cli.inspecting.picture import FOOT, draw_panels, known
from gpt_cli.language import say

_HEADS = 12  # of the map of heads by positions: those with the largest shares, above or below 0
_LETTERS = 8
_MOST_ERRORS = 40  # cells of a map with their numbers and errors
_TITLES = {
    "residual": "residual stream after a block",
    "attention": "output of attention",
    "feed_forward": "output of the feed-forward",
    "head": "output of heads, all positions",
    "heads": "output of the strongest heads",
    "path": "share of the edge",
}


class Panel(NamedTuple):
    """A map of shares [rows, columns] with their errors, NaN where there are none."""

    title: str
    numbers: np.ndarray
    errors: np.ndarray
    rows: list[str]
    columns: list[str]


def draw_patches(report: dict[str, Any], notice: Notify = ignored) -> bytes:
    """The report that `gpt patch --json` prints, as a png: red above 0, blue below, white at 0.

    It shows the shares, or the estimates where these are alone.
    All maps have the same colours. `notice` receives a line when no installed font has a character.
    """
    panels = list(_panels(report))
    about = report["pairs"]["file"] if "pairs" in report else f"{report['clean']} / {report['corrupt']}"
    origin = Origin(report["checkpoint"], report["step"], about)
    labels = "".join(label for panel in panels for label in (*panel.rows, *panel.columns)).replace("\n", "")
    heights = [0.19 * len(panel.rows) + 0.9 for panel in panels]
    width = max(4.5, max(0.3 * len(panel.columns) for panel in panels) + 1.8)
    most = max(1.0, *(float(np.abs(panel.numbers).max(initial=0)) for panel in panels))

    def draw_all(figure: Figure, missing: set[str], spoken: str) -> None:
        all_axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights).flat
        for axes, panel in zip(all_axes, panels, strict=True):
            _draw(figure, axes, panel, most, missing, spoken)

    return draw_panels(origin, (width, sum(heights) + FOOT), draw_all, notice, labels, 0.05)


def _panels(report: dict[str, Any]) -> Any:
    """Yields a map for each part; of heads one by layer, and one of the strongest by position."""
    figure = "recovered" if report["rows"][0]["recovered"] is not None else "estimate"
    positions = sorted({row["position"] for row in report["rows"] if row["position"] is not None})
    reached = {row["position"] for row in report["rows"] if row["position"] is not None and row[figure]}
    positions = [place for place in positions if place >= min(reached, default=0)][-MOST_TOKENS:]
    names = {place: _label(report, place) for place in positions}

    def panel(title: str, rows: Sequence[Row], row_of: Any, column_of: Any, columns: list[str]) -> Panel:
        labels = list(dict.fromkeys(map(row_of, rows)))
        numbers = np.full((len(labels), len(columns)), np.nan)
        errors = numbers.copy()
        for row in rows:
            at = labels.index(row_of(row)), columns.index(column_of(row))
            numbers[at], errors[at] = row[figure], row["recovered_error"] or np.nan
        return Panel(title, numbers, errors, labels, columns)

    for part in dict.fromkeys(row["part"] for row in report["rows"]):
        of_part = [row for row in report["rows"] if row["part"] == part]
        placed = [row for row in of_part if row["position"] in names]
        together = [row for row in of_part if row["position"] is None]
        row_of = (lambda row: row["input"]) if part == "path" else place_of
        if part == "head":
            heads = list(dict.fromkeys(f"H{row['head']}" for row in together))
            yield panel("head", together, lambda row: f"L{row['layer']}", lambda row: f"H{row['head']}", heads)
            most = {name: _most(placed, name, figure) for name in dict.fromkeys(map(place_of, placed))}
            best = sorted(most, key=lambda name: -most[name])[:_HEADS]
            placed = [row for name in best for row in placed if place_of(row) == name]
        if placed:
            title = "heads" if part == "head" else part
            yield panel(title, placed, row_of, lambda row: names[row["position"]], list(names.values()))
        elif part != "head":
            yield panel(part, together, row_of, lambda _: "", [""])


def _most(rows: Sequence[Row], name: str, figure: str) -> float:
    return max(abs(row[figure]) for row in rows if place_of(row) == name)


def _label(report: dict[str, Any], place: int) -> str:
    """A position and its tokens, one below the other where the prompts differ; no two are the same."""
    clean, corrupt = (report["tokens"][place][key] for key in ("clean", "corrupt"))
    tokens = [label_of(token, _LETTERS) for token in dict.fromkeys((clean, corrupt)) if token is not None]
    return "\n".join([str(place), *tokens])


def _draw(figure: Figure, axes: Axes, panel: Panel, most: float, missing: set[str], spoken: str) -> None:
    image = axes.imshow(panel.numbers, vmin=-most, vmax=most, cmap="RdBu_r", aspect="auto")
    axes.set_title(say(_TITLES[panel.title], spoken), fontsize=8)
    axes.set_yticks(range(len(panel.rows)), [say(row, spoken) for row in panel.rows])
    turned = max((len(line) for label in panel.columns for line in label.split("\n")), default=0) > 5
    axes.set_xticks(range(len(panel.columns)), [known(label, missing) for label in panel.columns], parse_math=False)
    axes.tick_params(axis="x", rotation=90 if turned else 0)
    axes.tick_params(length=0, pad=2)
    for side in axes.spines.values():
        side.set_visible(False)
    figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02).ax.tick_params(labelsize=6)
    for (row, column), number in np.ndenumerate(panel.numbers):
        error = float(panel.errors[row, column])
        if panel.numbers.size <= _MOST_ERRORS and not np.isnan(number):
            ink = "white" if abs(number) > 0.6 * most else "black"
            text = share_of(float(number), None if np.isnan(error) else float(error)).replace(" ", "\n")
            axes.text(column, row, text, ha="center", va="center", fontsize=5, color=ink)
