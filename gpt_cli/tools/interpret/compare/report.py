"""How two models differ, as tables, JSON, CSV and a picture. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpt_cli.attention_maps.head_metrics import Row, head_label
from gpt_cli.common.drawing.token_labels import quoted
from gpt_cli.common.results import WIDTH
from gpt_cli.common.tables import Rows
from gpt_cli.common.units import with_error
from gpt_cli.errors import visible
from gpt_cli.text.sources import source_names
from gpt_cli.tools.interpret.compare.request import OF_BLOCKS
from gpt_cli.tools.interpret.lens.report import cell_of
from gpt_cli.tools.interpret.reports import Report

MAX_HEADS = 10  # in the terminal
_TEXT = 44  # characters of a passage there


@dataclass(frozen=True)
class Comparison(Report):
    """Two models on the same text: differences are those of the second from the first."""

    # run, checkpoint, step, tokens, loss, loss_error (nats/token), bits_per_byte; of --data also training_share
    runs: list[Row]
    text: str | list[str]  # its sources
    difference: Row  # value, error, unit
    divergence: Row | None  # mean, error: of the second's predictions from the first's; None of other tokens
    heads: list[Row]  # layer, head, attention_change, write_change, with their errors
    weights: list[Row]  # layer, part, change, parameters
    # position (a token, else a byte), text, first, second; of the same tokens also before, divergence and tokens
    passages: list[Row]
    drawn_by = "compare.picture.draw_comparison"

    def as_dict(self) -> dict[str, Any]:
        """What `gpt compare --json` prints."""
        return {name: value for name, value in vars(self).items() if name != "out"}

    def key_figures(self) -> dict[str, Any]:
        """The runs, and how they differ."""
        return {"runs": [one["run"] for one in self.runs], "difference": self.difference["value"]}

    def parts(self, width: int = WIDTH) -> list[Rows | str]:
        """Tables of losses, heads, weights and passages, with a line on the difference; of heads the most changed."""
        losses = [("run", "step", "tokens", "nats/token", "bits/byte")]
        for one in self.runs:
            loss = with_error(one["loss"], one["loss_error"])
            figures = (f"{one['step']:,}", f"{one['tokens']:,}", loss, f"{one['bits_per_byte']:.4f}")
            losses.append((visible(one["run"]), *figures))
        more = with_error(self.difference["value"], self.difference["error"], signed=True)
        found: list[Rows | str] = [losses, f"second - first: {more} {self.difference['unit']}"]
        if self.divergence is not None:
            apart = with_error(self.divergence["mean"], self.divergence["error"])
            found.append(f"divergence of the second from the first: {apart} nats/token")
        if self.heads:
            rows = ((head_label(row), *_changes(row)) for row in self.heads[:MAX_HEADS])
            found.append([("head", "attention", "writes"), *rows])
        if self.weights:
            found += self._weights()
        if self.passages:
            found.append(self._passages())
        return found

    def _weights(self) -> list[Rows | str]:
        changes = {(row["layer"], row["part"]): row["change"] for row in self.weights}
        layers = sorted({layer for layer, _ in changes if layer is not None})
        others = [
            ("weights", "change"),
            *((part, _share(changes[None, part])) for layer, part in changes if layer is None),
        ]
        blocks = [(f"L{n}", *(_share(changes.get((n, part))) for part in OF_BLOCKS)) for n in layers]
        return [part for part in (others, [("layer", *OF_BLOCKS), *blocks]) if len(part) > 1]

    def _passages(self) -> Rows:
        names = ("divergence", "first", "second") if "divergence" in self.passages[0] else ("first", "second")
        rows = ((*(f"{each[name]:.3f}" for name in names), quoted(each["text"], _TEXT)) for each in self.passages)
        return [(*names, "passage"), *rows]

    def legend(self) -> Iterator[str]:
        """What was read, and what the columns mean, in lines."""
        yield f"both models read {visible(', '.join(source_names(self.text)))}; ±: standard error"
        if self.heads:
            yield "attention: total variation distance of its rows (0 to 1); writes, weights: ||b - a|| / ||a||"
            if len(self.heads) > MAX_HEADS:
                yield f"{MAX_HEADS} of {len(self.heads)} heads are shown; --json and --out have all"
        if self.passages:
            unit = "nats/token" if self.divergence is not None else "bits/byte"
            yield f"passages where the predictions part most, and what they cost each model ({unit})"

    def csv_rows(self) -> list[Row]:
        """All figures but those of passages, a row for each."""
        found = list[Row]()

        def add(what: str, value: float | None, error: float | None = None, **place: Any) -> None:
            empty = {"run": None, "layer": None, "head": None, "part": None}
            found.append({"what": what, **empty, **place, "value": value, "error": error})

        for one in self.runs:
            add("loss", one["loss"], one["loss_error"], run=one["run"])
            add("bits_per_byte", one["bits_per_byte"], run=one["run"])
        add(f"difference ({self.difference['unit']})", self.difference["value"], self.difference["error"])
        if self.divergence is not None:
            add("divergence", self.divergence["mean"], self.divergence["error"])
        for row in self.heads:
            for name in ("attention_change", "write_change"):
                add(name, row[name], row[f"{name}_error"], layer=row["layer"], head=row["head"])
        for row in self.weights:
            add("weight_change", row["change"], layer=row["layer"], part=row["part"])
        return found


def _changes(row: Row) -> tuple[str, str]:
    return cell_of(row, "attention_change", 4), cell_of(row, "write_change", 4)


def _share(change: float | None) -> str:
    return "-" if change is None else f"{change:.4f}"
