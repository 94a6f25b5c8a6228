"""What patches recover of one model, or by step, as tables, JSON, CSV, a picture and a page. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpt_cli.attention_maps.head_metrics import Row, head_label
from gpt_cli.checkpoints.run_paths import run_name
from gpt_cli.common.drawing.token_labels import label_of, quoted
from gpt_cli.common.results import WIDTH
from gpt_cli.common.tables import Rows
from gpt_cli.errors import counted
from gpt_cli.tools.interpret.patching.request import PARTS
from gpt_cli.tools.interpret.reports import MAX_ROWS, Report, evenly, spaced, steps_shown
from gpt_cli.tools.pages.html_page import build_page, packed
from gpt_cli.tools.pages.kinds import PATCH

MOST_TOKENS = 24  # of a map; the last ones of longer prompts
LABEL = 10  # characters of a token
STRONGEST = 3  # places of a part in the terminal
_CELL = 7
_NUMBERS = ("recovered", "recovered_error", "estimate")  # on a page, NaN where a row has none
LEAST = 0.005  # of a share in the terminal, which shows two decimals


@dataclass(frozen=True)
class Patched(Report):
    """What was compared in one pair of prompts, or in several."""

    clean: str | None  # of one pair
    corrupt: str | None
    pairs: Row | None  # file and number, of several
    metric: str  # logit_difference or log_probability
    answer: str | None  # the tokens; None where they differ between pairs
    against: str | None
    tokens: list[Row]  # position, clean, corrupt: None where pairs differ

    @property
    def compared(self) -> Row:
        """The keys of a report that say what was compared."""
        texts = {"clean": self.clean, "corrupt": self.corrupt} if self.pairs is None else {"pairs": self.pairs}
        return {**texts, "metric": self.metric, "answer": self.answer, "against": self.against}

    @property
    def metric_words(self) -> str:
        """The metric in words, with its tokens where all pairs share them."""
        if self.metric == "log_probability":
            return f"log probability of {'the answer' if self.answer is None else quoted(self.answer, LABEL)}"
        if self.answer is None or self.against is None:
            return "logit of the answer minus logit of the other"
        return f"logit of {quoted(self.answer, LABEL)} minus logit of {quoted(self.against, LABEL)}"


@dataclass(frozen=True)
class PatchReport(Patched):
    """What patches of a clean prompt recover of the metric of a corrupt one, or of several pairs."""

    checkpoint: str
    step: int
    clean_metric: float
    corrupt_metric: float
    rows: list[Row]  # part, layer, head, position, recovered, recovered_error; perhaps estimate; of an edge input
    correlation: float | None = None  # of estimates and exact shares
    path: str | None = None
    drawn_by = "patching.picture.draw_patches"

    def as_dict(self) -> dict[str, Any]:
        """What `gpt patch --json` prints."""
        found = {"checkpoint": self.checkpoint, "step": self.step, **self.compared}
        found |= {"clean_metric": self.clean_metric, "corrupt_metric": self.corrupt_metric, "tokens": self.tokens}
        found |= {} if self.path is None else {"path": self.path}
        return found | {"rows": self.rows, "correlation": self.correlation}

    def key_figures(self) -> dict[str, Any]:
        """The pair, and what the metric is on both prompts."""
        known = {"clean": self.clean, "corrupt": self.corrupt, "pairs": self.pairs and self.pairs["number"]}
        return {**known, "clean_metric": self.clean_metric, "corrupt_metric": self.corrupt_metric}

    def parts(self, width: int = WIDTH) -> list[Rows]:
        """A map of the residual stream, positions by layers, then the strongest places of each other part.

        Where the layers do not fit, those that do are evenly spaced.
        """
        if self.path is not None:
            return [self._of_edge()]
        figure = "recovered" if self.rows[0]["recovered"] is not None else "estimate"
        stream = [row for row in self.rows if row["part"] == "residual" and row["position"] is not None]
        found = [self._map(stream, figure, width)] if stream else []
        strongest = [row for part in PARTS for row in self.strongest(part, figure)]
        return found + ([self._places(strongest)] if strongest else [])

    def strongest(self, part: str, figure: str) -> list[Row]:
        """The rows of a part with the largest shares, above or below 0: of all positions together, then of each.

        None of the residual stream, which the map shows.
        """
        rows = [row for row in self.rows if row["part"] == part != "residual"]
        placed = [row for row in rows if row["position"] is not None and abs(row[figure]) >= LEAST]
        kinds = ([row for row in rows if row["position"] is None], placed)
        return [row for kind in kinds for row in sorted(kind, key=lambda row: -abs(row[figure]))[:STRONGEST]]

    def label(self, position: int | None) -> str:
        """A position as its tokens: those of both prompts where they differ."""
        if position is None:
            return "all"
        clean, corrupt = (self.tokens[position][key] for key in ("clean", "corrupt"))
        if clean is None:
            return str(position)
        return f"{position} {quoted(clean, LABEL)}" + ("" if clean == corrupt else f" / {quoted(corrupt, LABEL)}")

    def _map(self, rows: Sequence[Row], figure: str, width: int) -> Rows:
        layers = sorted({row["layer"] for row in rows})
        shown = spaced(len(layers), (width - 2 * LABEL - 12) // _CELL)
        cells = {(row["position"], row["layer"]): row[figure] for row in rows}
        reached = [place for place in sorted({row["position"] for row in rows}) if any(cells[place, n] for n in layers)]
        found = [("residual", *(f"L{layers[n]}" for n in shown))]
        return found + [
            (self.label(place), *(share_of(cells[place, layers[n]]) for n in shown)) for place in reached[-MOST_TOKENS:]
        ]

    def _places(self, rows: Sequence[Row]) -> Rows:
        estimates = [] if "estimate" not in rows[0] else ["estimate"]
        found = [("part", "place", "position", *([] if rows[0]["recovered"] is None else ["recovered"]), *estimates)]
        for row in rows:
            exact = [] if row["recovered"] is None else [share_of(row["recovered"], row["recovered_error"])]
            estimate = [share_of(row[name]) for name in estimates]
            found.append((row["part"], head_label(row), self.label(row["position"]), *exact, *estimate))
        return found

    def _of_edge(self) -> Rows:
        """What the edge recovers with the sender patched at all positions, and at those with the largest shares."""
        rows = [row for row in self.rows if row["position"] is None]
        by_position = [row for row in self.rows if row["position"] is not None and abs(row["recovered"]) >= LEAST]
        rows += sorted(by_position, key=lambda row: -abs(row["recovered"]))[: 2 * STRONGEST]
        heading = ("edge", "read as", "position", "recovered")
        cells = ((share_of(row["recovered"], row["recovered_error"]), self.label(row["position"])) for row in rows)
        return [
            heading,
            *((str(self.path), row["input"], at, share) for row, (share, at) in zip(rows, cells, strict=True)),
        ]

    def legend(self) -> Iterator[str]:
        """What was compared, and what the columns mean, in lines."""
        yield f"{run_name(Path(self.checkpoint))}, step {self.step:,}; metric: {self.metric_words}"
        yield f"clean {self.clean_metric:.4f}, corrupt {self.corrupt_metric:.4f}; recovered: 0 as corrupt, 1 as clean"
        if self.pairs is not None and self.pairs["number"] > 1:
            yield f"{counted(self.pairs['number'], 'pair')}: mean change over mean difference, ± standard error"
        if self.correlation is not None:
            yield f"correlation of estimates and exact shares: {self.correlation:.4f}"

    def as_page(self) -> str | None:
        """The same maps for a browser; an edge has none."""
        return None if self.path is not None else patch_page(self.as_dict()).decode()

    def csv_rows(self) -> list[Row]:
        """A row for each place."""
        return self.rows


@dataclass(frozen=True)
class PatchHistory(Patched):
    """What patches recover by step. A share is None at a step whose metric is the same on clean and corrupt prompts."""

    run: str
    steps: list[dict[str, Any]]  # step, clean_metric, corrupt_metric, rows
    drawn_by = "patching.picture.draw_history"

    def as_dict(self) -> dict[str, Any]:
        """What `gpt patch --over-training --json` prints."""
        return {"run": self.run, **self.compared, "tokens": self.tokens, "steps": self.steps}

    def parts(self, width: int = WIDTH) -> list[Rows]:
        """At most 20 steps: the metric on both prompts, and of each part the place with the largest share."""
        kinds = parts_by_step(self.steps[-1]["rows"])
        found = [("step", "clean", "corrupt", *kinds)]
        for at in evenly(self.steps, MAX_ROWS):
            best = (strongest(at["rows"], part) for part in kinds)
            cells = (
                "-" if row is None else f"{head_label(row)} {share_of(row['recovered'], row['recovered_error'])}"
                for row in best
            )
            found.append((str(at["step"]), f"{at['clean_metric']:.3f}", f"{at['corrupt_metric']:.3f}", *cells))
        return [found]

    def legend(self) -> list[str]:
        """What was compared, and how much of it is shown, in lines."""
        about = [
            f"{self.run}; metric: {self.metric_words}",
            "of each part, the place with the largest share, above or below 0, at all positions together",
        ]
        if "residual" in parts_by_step(self.steps[-1]["rows"]):
            about.append("residual: the first layer after which the last position alone recovers half")
        return about + steps_shown(self.steps, "checkpoint")

    def as_page(self) -> str:
        """The maps of the report, with a slider over the steps."""
        return patch_page({"checkpoint": self.run, **self.as_dict()}).decode()

    def csv_rows(self) -> list[Row]:
        """A row for each step and place."""
        own = ("step", "clean_metric", "corrupt_metric")
        return [{name: at[name] for name in own} | row for at in self.steps for row in at["rows"]]


def strongest(rows: Sequence[Row], part: str) -> Row | None:
    """The row of a part with the largest share, above or below 0; None where there is no share.

    Of the residual stream the first layer that recovers half, as the last one always recovers all.
    """
    shares = [row for row in rows_by_step(rows, part) if row["recovered"] is not None]
    if part == "residual":
        return next((row for row in shares if row["recovered"] >= 0.5), None)
    return max(shares, key=lambda row: abs(row["recovered"]), default=None)


def share_of(number: float | None, error: float | None = None) -> str:
    return (
        "-"
        if number is None
        else f"{number:.2f}".replace("-0.00", "0.00") + ("" if error is None else f" ±{error:.2f}")
    )


def rows_by_step(rows: Sequence[Row], part: str) -> list[Row]:
    """The rows of a part in tables and pictures: all positions together, of the residual stream the last one.

    All positions of the residual stream recover everything.
    """
    last = max((row["position"] for row in rows if row["position"] is not None), default=-1)
    place = last if part == "residual" else None
    return [row for row in rows if row["part"] == part and row["position"] == place]


def parts_by_step(rows: Sequence[Row]) -> list[str]:
    """The parts that have such rows."""
    return [part for part in PARTS if rows_by_step(rows, part)]


def patch_page(report: dict[str, Any]) -> bytes:
    """The report that `gpt patch --json` prints, of one pair or the means of several, as HTML in UTF-8.

    With `steps` it is a film of them.
    """
    steps = report.get("steps") or [report]
    content = {
        "checkpoint": report["checkpoint"],
        "steps": [at["step"] for at in steps],
        "texts": {kind: _shown(report.get(kind)) for kind in ("clean", "corrupt")},
        "pairs": report.get("pairs"),
        "metric": report["metric"],
        "answer": _shown(report.get("answer")),
        "against": _shown(report.get("against")),
        "metrics": [{kind: at[f"{kind}_metric"] for kind in ("clean", "corrupt")} for at in steps],
        "tokens": [{kind: _shown(row[kind]) for kind in ("clean", "corrupt")} for row in report.get("tokens") or []],
        "patch": patch_content([at["rows"] for at in steps]),
    }
    return build_page(PATCH, content)


def patch_content(frames: Sequence[Sequence[Row]]) -> dict[str, object]:
    """The rows of frames, whose places [n, 4] (part, layer, head, position; -1 is none, or all) are the same.

    Their numbers are [frames, n, 3].
    """
    places = [
        [PARTS.index(row["part"]), *(_or(row[name], -1) for name in ("layer", "head", "position"))] for row in frames[0]
    ]
    numbers = [[[_or(row.get(name), np.nan) for name in _NUMBERS] for row in rows] for rows in frames]
    return {
        "parts": PARTS,
        "places": packed(np.array(places, "<i4").tobytes()),
        "numbers": packed(np.array(numbers, "<f4").tobytes()),
    }


def _or(number: float | None, other: float) -> float:
    return other if number is None else number


def _shown(text: str | None) -> str | None:
    return None if text is None else label_of(text, limit=None)
