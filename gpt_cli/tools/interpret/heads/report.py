"""A report on heads: a row for each, as tables, JSON, CSV and a picture. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from gpt_cli.attention_maps.head_metrics import COLUMNS, LEAST_TOKENS, LOSS_CHANGE, HeadScores, Row, head_label, role_of
from gpt_cli.checkpoints.run_paths import run_name
from gpt_cli.common.drawing.token_labels import quoted
from gpt_cli.common.results import WIDTH
from gpt_cli.common.tables import Rows, table
from gpt_cli.errors import counted
from gpt_cli.text.sources import source_names
from gpt_cli.tools.interpret.heads.report_tables import (
    BRACKETS,
    of_directions,
    of_pairs,
    of_passages,
    shown_peak,
)
from gpt_cli.tools.interpret.reports import Report, as_csv

if TYPE_CHECKING:
    import numpy as np

_COLOUR = "\033[30;43m", "\033[0m"  # black on yellow, which every colour terminal has
# short, so that a row fits
HEADINGS = {
    "entropy": "entr",
    "mean_distance": "dist",
    "first_token": "first",
    "previous_token": "prev",
    "self": "self",
    "duplicate_token": "dup",
    "induction": "ind",
}


@dataclass(frozen=True)
class HeadReport(Report):
    """What heads do on a prompt or a text: of each a row of scores, and what it is worth and promotes where asked."""

    checkpoint: str
    step: int
    text: str | list[str]  # the prompt, or the sources of the text
    tokens: int
    # layer, head, COLUMNS, label; perhaps loss_change with its error, raises, lowers, passages, ov, qk
    heads: list[Row]
    loss: float | None = None  # of the whole model, in nats per token
    layers: list[Row] | None = None  # what whole layers are worth
    query: Row | None = None  # the position, and its token, at which tokens are promoted
    circuits: Row | None = None  # the baseline, and the composition of each pair of heads, the highest score first
    of_prompt: bool = False
    training_share: float | None = None  # of --data, about how much of it the model has learned from
    drawn_by = "heads.picture.draw_report"

    def as_dict(self) -> dict[str, Any]:
        """What `gpt heads --json` prints."""
        found = {"checkpoint": self.checkpoint, "step": self.step, "text": self.text, "tokens": self.tokens}
        asked: dict[str, Any] = {"training_share": self.training_share, "loss": self.loss}
        asked |= {"layers": self.layers, "query": self.query, "circuits": self.circuits}
        return found | {name: value for name, value in asked.items() if value is not None} | {"heads": self.heads}

    def as_coloured_text(self, width: int = WIDTH) -> str:
        """The same with the peaks of passages in colour."""
        return "\n\n".join(map(table, self.parts(width, _COLOUR)))

    def parts(self, width: int = WIDTH, marks: tuple[str, str] = BRACKETS) -> list[Rows]:
        """A row for each head; then what else was asked for, with the peak of a passage between `marks`."""
        parts: list[Rows] = [_of_heads(self.heads)]
        if self.layers is not None:
            rows = [(str(row["layer"]), _change(row)) for row in self.layers]
            parts.append([("layer", "loss change"), *rows])
        if self.query is not None:
            title = f"raised most at token {self.query['position']}, {quoted(self.query['token'])}"
            parts.append([("head", title), *((head_label(row), _raised(row, width)) for row in self.heads)])
        if self.has_passages:
            parts.append(of_passages(self.heads, width, marks))
        if self.circuits is not None:
            pairs = [of_pairs(self.circuits)] if self.circuits["composition"] else []
            parts += [*pairs, *of_directions(self.heads, width)]
        return parts

    @property
    def has_passages(self) -> bool:
        return "passages" in self.heads[0]

    def legend(self) -> Iterator[str]:
        """What was read, and what the headings mean, in lines."""
        source = "the prompt" if self.of_prompt else ", ".join(source_names(self.text))
        yield f"{run_name(Path(self.checkpoint))}, step {self.step:,}: {counted(self.tokens, 'token')} of {source}"
        yield "entr: entropy (nats), dist: mean distance (tokens). Shares of the attention:"
        yield "first: the first token, prev: the token before, self: the token itself,"
        yield "dup: earlier copies of this token, ind: the token after an earlier copy"
        if self.tokens < LEAST_TOKENS:
            yield f"labels need a text of at least {LEAST_TOKENS} tokens"
        if self.loss is not None:
            yield f"loss change: how much the loss ({self.loss:.4f}) rises without it, ± standard error"
        if self.has_passages:
            yield "size: the norm of what a head adds to the residual stream at the marked token; mean: over all"
        if self.circuits is not None:
            if self.circuits["composition"]:
                yield f"score of a pair: 0 to 1; {self.circuits['baseline']:.3f} for heads that are turned at random"
            yield "OV: tokens that a head reads, and those it writes; QK: tokens that look, and those they look at"

    def as_page(self) -> str:
        """The table, a scatter of the heads by two scores, and the passages and circuits of each."""
        from gpt_cli.tools.interpret.heads.report_page import heads_page

        return heads_page(self.as_dict()).decode()

    def as_csv(self) -> bytes:
        """The rows of heads as CSV; what a whole layer is worth stands in the rows of its heads."""
        return as_csv(self.csv_rows(), self.layers or ())

    def csv_rows(self) -> list[Row]:
        """The rows for CSV: passages as texts, and the scores of the heads that compose with each, as q_L0_H3."""
        composed = dict[tuple[int, int], Row]()
        columns = []
        for pair in (self.circuits or {}).get("composition", ()):
            column = f"{pair['kind'].lower()}_L{pair['from_layer']}_H{pair['from_head']}"
            columns.append((pair["kind"], pair["from_layer"], pair["from_head"], column))
            composed.setdefault((pair["to_layer"], pair["to_head"]), {})[column] = pair["score"]
        names = dict.fromkeys(column for *_, column in sorted(columns))
        rows = []
        for row in self.heads:
            texts = {"passages": [_as_text(passage) for passage in row["passages"]]} if self.has_passages else {}
            found = composed.get((row["layer"], row["head"]), {})
            rows.append(row | texts | {name: found.get(name) for name in names})
        return rows


def head_rows(scores: HeadScores, num_tokens: int) -> list[Row]:
    """A row for each head, by layer and head: where it is, its scores, None where there are none, and its label."""
    rows = []
    for row, layer in enumerate(scores.layers):
        for column, head in enumerate(scores.heads):
            found = scores.of(row, column)
            numbers = {name: _or_none(found[name]) for name in COLUMNS}
            rows.append({"layer": layer, "head": head, **numbers, "label": role_of(found, num_tokens)})
    return rows


def change_rows(changes: np.ndarray, errors: np.ndarray) -> list[Row]:
    """The columns that an ablation adds, a row for each of its heads or layers."""
    pairs = zip(changes.ravel().tolist(), errors.ravel().tolist(), strict=True)
    return [{LOSS_CHANGE: change, f"{LOSS_CHANGE}_error": _or_none(error)} for change, error in pairs]


def sort_rows(rows: Sequence[Row], column: str | None) -> list[Row]:
    """The rows with the highest number of a column first, and those without one last; None leaves their order."""
    if column is None:
        return [*rows]
    return sorted(rows, key=lambda row: -math.inf if row[column] is None else row[column], reverse=True)


def _as_text(passage: Row) -> Row:
    """A passage in a few cells."""
    tokens, looks = passage["tokens"], passage["looks_at"]
    found = {"place": passage["place"] + passage["peak"], "value": passage["value"]}
    found |= {"token": tokens[shown_peak(passage)], "text": "".join(tokens)}
    return found | {"looks_at": [{"token": look["token"], "weight": look["weight"]} for look in looks]}


def _or_none(number: float) -> float | None:
    return None if math.isnan(number) else number


def _of_heads(rows: list[Row]) -> Rows:
    headings = [*HEADINGS.values(), *(["loss change"] if LOSS_CHANGE in rows[0] else [])]
    columns = [[name, *found] for name, found in zip(headings, zip(*map(_numbers, rows), strict=True), strict=True)]
    widths = [max(map(len, column)) for column in columns]
    aligned = [[cell.rjust(width) for cell in column] for column, width in zip(columns, widths, strict=True)]
    labels = ["label", *((row["label"] or "").removesuffix(" token") for row in rows)]
    return [*zip(["head", *map(head_label, rows)], *aligned, labels, strict=True)]


def _numbers(row: Row) -> list[str]:
    """The cells of a head."""
    cells = []
    for name in HEADINGS:
        number = row[name]
        # a distance of hundreds of tokens needs no decimals
        decimals = 2 if name != "mean_distance" else 1 if number is None or number < 99.95 else 0
        cells.append("-" if number is None else f"{number:.{decimals}f}")
    return [*cells, _change(row)] if LOSS_CHANGE in row else cells


def _change(row: Row) -> str:
    error = row[f"{LOSS_CHANGE}_error"]
    return f"{row[LOSS_CHANGE]:+.4f}" + ("" if error is None else f" ±{error:.4f}")


def _raised(row: Row, width: int) -> str:
    """As many of the tokens as fit beside the name, at least one."""
    text = ""
    for entry in row["raises"]:
        more = f"{quoted(entry['token'])} {entry['logit']:+.2f}"
        if text and cell_len(text) + 2 + cell_len(more) > width - cell_len(head_label(row)) - 3:
            break
        text += ("  " if text else "") + more
    return text
