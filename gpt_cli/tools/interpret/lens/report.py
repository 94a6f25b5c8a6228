"""What layers would predict, also by step, as tables, JSON, CSV and a picture. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.checkpoints.run_paths import run_name
from gpt_cli.common.drawing.token_labels import quoted
from gpt_cli.common.results import WIDTH
from gpt_cli.common.tables import Rows, table
from gpt_cli.errors import counted, visible
from gpt_cli.text.sources import source_names
from gpt_cli.tools.interpret.lens.page import lens_page
from gpt_cli.tools.interpret.lens.request import GAINS, MEASURES
from gpt_cli.tools.interpret.reports import MAX_ROWS, Report, evenly, spaced, steps_shown

_LABEL = 8  # characters of a predicted token in the terminal
_CELL = 16  # columns of a mean with its error
# the keys of a prediction as columns of a CSV
_COLUMNS: Mapping[str, str] = {"token": "predicted", "id": "predicted_id", "tuned_token": "tuned_predicted"}


@dataclass(frozen=True)
class LensReport(Report):
    """What each layer would already predict on a prompt or a text: means, and of a prompt each position."""

    checkpoint: str
    step: int
    text: str | list[str]  # the prompt, or the sources of the text
    tokens: int
    # layer; of each of MEASURES its mean and its standard error, None of a prompt; with maps the same as tuned_, and
    # by how much maps lower each of GAINS
    layers: list[Row]
    positions: list[Row] | None = None  # position, token, next, layers
    tuned: Row | None = None  # of maps: the text and the steps of their training, and the file that keeps them
    training_share: float | None = None  # of --data, about how much of it the model has learned from
    drawn_by = "lens.picture.draw_lens"

    def as_dict(self) -> dict[str, Any]:
        """What `gpt lens --json` prints."""
        found = {"checkpoint": self.checkpoint, "step": self.step, "text": self.text, "tokens": self.tokens}
        more = {"training_share": self.training_share, "tuned": self.tuned, "layers": self.layers}
        more["positions"] = self.positions
        return found | {name: value for name, value in more.items() if value is not None}

    def key_figures(self) -> dict[str, Any]:
        """The text, and the loss of each layer."""
        return {"text": self.text, "tokens": self.tokens, "losses": [row["loss"] for row in self.layers]}

    def parts(self, width: int = WIDTH) -> list[Rows]:
        """Of a prompt the likeliest next token of each layer at each position, then the means of each layer.

        Where the layers do not fit, those that do are evenly spaced, the last one among them.
        """
        means = [("layer", *MEASURES), *(_means(row) for row in self.layers)]
        if self.tuned is not None:
            headings = [(name, f"{name}, tuned", "gain") for name in GAINS]
            means = [("layer", *(word for each in headings for word in each)), *map(_gains, self.layers)]
        prefix = "tuned_" if self.tuned is not None else ""
        if not self.positions:
            return [means]
        shown = spaced(len(self.layers), (width - _LABEL - 4) // (_LABEL + 4))
        rows = [("token", *(f"L{self.layers[n]['layer']}" for n in shown))]
        for each in self.positions:
            cells = (quoted(each["layers"][n][f"{prefix}token"], _LABEL) for n in shown)
            rows.append((quoted(each["token"], _LABEL), *cells))
        return [rows, means]

    def legend(self) -> Iterator[str]:
        """What was read, and what the columns mean, in lines."""
        source = "the prompt" if self.positions is not None else ", ".join(source_names(self.text))
        yield f"{run_name(Path(self.checkpoint))}, step {self.step:,}: {counted(self.tokens, 'token')} of {source}"
        if self.positions is not None:
            yield "in each row: a token of the prompt, and the likeliest next one after each layer"
        if self.tuned is None:
            yield "loss, rank (from 1) and probability of the true next token; divergence from the last layer (nats)"
        else:
            trained_on = visible(", ".join(source_names(self.tuned["text"])))
            yield f"tuned: behind maps that were trained on {trained_on} in {counted(self.tuned['steps'], 'step')}"
            yield "loss of the true next token, divergence from the last layer (nats); gain: how much the maps lower it"
        if self.positions is None:
            yield "±: standard error"

    def as_page(self) -> str:
        """Of a prompt a grid of layers by tokens, of a text curves."""
        return lens_page(self.as_dict()).decode()

    def csv_rows(self) -> list[Row]:
        """A row for each layer of each position, or for each layer; None is empty, no text is a formula."""
        rows = self.layers
        if self.positions is not None:
            rows = [
                {"position": at["position"], "token": at["token"], "next": at["next"], "layer": row["layer"]}
                | {_COLUMNS.get(key, key): cell for key, cell in row.items()}
                for at in self.positions
                for row in at["layers"]
            ]
        return rows


@dataclass(frozen=True)
class LensHistory(Report):
    """What each layer would predict at the steps of a run, on the same prompt or text: means over its tokens."""

    run: str
    text: str | list[str]  # the prompt, or the sources of the text
    tokens: int
    steps: list[Row]  # step, layers: a row for each as in a LensReport
    of_prompt: bool = False
    drawn_by = "lens.picture.draw_lens_history"

    def as_dict(self) -> dict[str, Any]:
        """What `gpt lens --over-training --json` prints."""
        return {"run": self.run, "text": self.text, "tokens": self.tokens, "steps": self.steps}

    def key_figures(self) -> dict[str, Any]:
        """The run, the text and the steps."""
        return {"run": self.run, "text": self.text, "steps": [at["step"] for at in self.steps]}

    def as_text(self, width: int = WIDTH) -> str:
        """Tables of loss and of divergence: a row for each step, a column for each layer."""
        return "\n\n".join(f"{name}\n{table(rows)}" for name, rows in zip(GAINS, self.parts(width), strict=True))

    def parts(self, width: int = WIDTH) -> list[Rows]:
        """The same as tables, of at most 20 steps; layers that do not fit are left out evenly, but for the last."""
        chosen = spaced(len(self.steps[-1]["layers"]), (width - 8) // _CELL)
        layers = [self.steps[-1]["layers"][n]["layer"] for n in chosen]
        steps = evenly(self.steps, MAX_ROWS)
        return [
            [
                ("step", *(f"L{layer}" for layer in layers)),
                *((str(at["step"]), *(cell_of(at["layers"][n], name, 3) for n in chosen)) for at in steps),
            ]
            for name in GAINS
        ]

    def legend(self) -> Iterator[str]:
        """What the tables are about, in lines."""
        source = "the prompt" if self.of_prompt else ", ".join(source_names(self.text))
        yield f"{self.run}, by step: {counted(self.tokens, 'token')} of {source}"
        yield "loss of the true next token after each layer, and divergence from the last layer of the same step (nats)"
        if not self.of_prompt:
            yield "±: standard error"
        yield from steps_shown(self.steps, "checkpoint")

    def csv_rows(self) -> list[Row]:
        """A row for each step and layer."""
        return [{"step": at["step"], **row} for at in self.steps for row in at["layers"]]


def _means(row: Row) -> tuple[str, ...]:
    cells = (cell_of(row, name, 1 if name == "rank" else 4) for name in MEASURES)
    return (str(row["layer"]), *cells)


def _gains(row: Row) -> tuple[str, ...]:
    names = (part for name in GAINS for part in ((name, False), (f"tuned_{name}", False), (f"{name}_gain", True)))
    return (str(row["layer"]), *(cell_of(row, name, 3, with_error=erring) for name, erring in names))


def cell_of(row: Row, name: str, decimals: int, *, with_error: bool = True) -> str:
    """A mean of a row, with its standard error where it has one."""
    number, error = row[name], row[f"{name}_error"]
    cell = "-" if number is None else f"{number:,.{decimals}f}"
    return cell if error is None or not with_error else f"{cell} ±{error:,.{decimals}f}"
