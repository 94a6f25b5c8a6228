"""What layers would predict, as tables, JSON, CSV and a picture. Needs no torch."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_cli.callbacks import Notify, ignored
from gpt_cli.checkpoints.run_files import run_name
from gpt_cli.drawing.labels import inert_cell, label_of
from gpt_cli.errors import counted
from gpt_cli.inspecting.heads.columns import Row
from gpt_cli.inspecting.heads.report import as_json
from gpt_cli.inspecting.lens.page import lens_page
from gpt_cli.inspecting.lens.request import MEASURES
from gpt_cli.results import WIDTH, Result
from gpt_cli.tables import Rows, table

_LABEL = 8  # characters of a predicted token in the terminal


@dataclass(frozen=True)
class LensReport(Result):
    """What each layer would already predict on a prompt or a text: means, and of a prompt each position."""

    checkpoint: str
    step: int
    text: str | list[str]  # the prompt, or the sources of the text
    tokens: int
    layers: list[Row]  # layer; of each of MEASURES its mean and its standard error, None of a prompt
    positions: list[Row] | None = None  # position, token, next, layers
    out: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """What `gpt lens --json` prints."""
        found = {"checkpoint": self.checkpoint, "step": self.step, "text": self.text, "tokens": self.tokens}
        each = {} if self.positions is None else {"positions": self.positions}
        return {**found, "layers": self.layers, **each}

    def key_figures(self) -> dict[str, Any]:
        """The text, and the loss of each layer."""
        return {"text": self.text, "tokens": self.tokens, "losses": [row["loss"] for row in self.layers]}

    def as_text(self, width: int = WIDTH) -> str:
        """Of a prompt the likeliest next token of each layer at each position, then the means of each layer."""
        return "\n\n".join(map(table, self.parts(width)))

    def parts(self, width: int = WIDTH) -> list[Rows]:
        """The same as tables; where the layers do not fit, those that do are evenly spaced, the last one among them."""
        means = [("layer", *MEASURES), *(_means(row) for row in self.layers)]
        if not self.positions:
            return [means]
        all_layers = len(self.layers)
        fitting = min(all_layers, max(1, (width - _LABEL - 4) // (_LABEL + 4)))
        shown = sorted(all_layers - 1 - n * all_layers // fitting for n in range(fitting))
        rows = [("token", *(f"L{self.layers[n]['layer']}" for n in shown))]
        for each in self.positions:
            cells = (f'"{label_of(each["layers"][n]["token"], _LABEL)}"' for n in shown)
            rows.append((f'"{label_of(each["token"], _LABEL)}"', *cells))
        return [rows, means]

    def legend(self) -> Iterator[str]:
        """What was read, and what the columns mean, in lines."""
        source = self.text if isinstance(self.text, str) else ", ".join(self.text)
        source = "the prompt" if self.positions is not None else source
        yield f"{run_name(Path(self.checkpoint))}, step {self.step:,}: {counted(self.tokens, 'token')} of {source}"
        if self.positions is not None:
            yield "in each row: a token of the prompt, and the likeliest next one after each layer"
        yield "loss, rank (from 1) and probability of the true next token; divergence from the last layer (nats)"
        if self.positions is None:
            yield "±: standard error"

    def as_picture(self, notice: Notify = ignored) -> bytes:
        """Of a prompt a map of layers by tokens, of a text curves, as PNG."""
        from gpt_cli.inspecting.lens.picture import draw_lens

        return draw_lens(self.as_dict(), notice)

    def as_page(self) -> str:
        """Of a prompt a grid of layers by tokens, of a text curves."""
        return lens_page(self.as_dict()).decode()

    def as_file(self, ending: str, notice: Notify) -> bytes:
        """The content of a file of that ending."""
        if ending == ".html":
            return self.as_page().encode()
        if ending == ".png":
            return self.as_picture(notice)
        return as_json(self.as_dict()) if ending == ".json" else self._as_csv()

    def _as_csv(self) -> bytes:
        """A row for each layer of each position, or for each layer; None is empty, no text is a formula."""
        rows = self.layers
        if self.positions is not None:
            rows = [
                {"position": at["position"], "token": at["token"], "next": at["next"], "layer": row["layer"]}
                | {"predicted" if key == "token" else "predicted_id" if key == "id" else key: row[key] for key in row}
                for at in self.positions
                for row in at["layers"]
            ]
        text = io.StringIO()
        text.write(f"{','.join(rows[0])}\n")
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writerows(
            {key: inert_cell(cell) if isinstance(cell, str) else cell for key, cell in row.items()} for row in rows
        )
        return text.getvalue().encode()


def _means(row: Row) -> tuple[str, ...]:
    cells = []
    for name, decimals in zip(MEASURES, (4, 1, 4, 4), strict=True):
        number, error = row[name], row[f"{name}_error"]
        cell = "-" if number is None else f"{number:,.{decimals}f}"
        cells.append(cell if error is None else f"{cell} ±{error:,.{decimals}f}")
    return (str(row["layer"]), *cells)
