"""How `gpt lens` shows the predictions of layers, of one model or by training step. Needs no torch."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.common.drawing.panels import Curves, Panel
from gpt_cli.common.drawing.token_labels import STEPS, label_of, quoted
from gpt_cli.common.results import WIDTH
from gpt_cli.common.tables import Rows
from gpt_cli.errors import counted, visible
from gpt_cli.text.sources import source_names
from gpt_cli.tools.interpret.figure import cell_at, cells, curve, heat_map, spaced
from gpt_cli.tools.interpret.finding import Finding, steps_shown, table_by_step
from gpt_cli.tools.interpret.lens.request import GAINS, MEASURES
from gpt_cli.tools.pages.html_page import LENS, build_page, packed

MOST_TOKENS = 24  # of a map; the last ones of a longer prompt
_LETTERS = 7  # of a token there
_LABEL = 8  # characters of a predicted token in the terminal
_CELL = 16  # columns of a mean with its error
# the keys of a prediction as columns of a CSV
_COLUMNS: Mapping[str, str] = {"token": "predicted", "id": "predicted_id", "tuned_token": "tuned_predicted"}
_OF_PAGE = ("token_probability", "divergence", "loss", "rank", "probability")  # NaN where the next token is unknown
CELL_BYTES = 4 * (len(_OF_PAGE) + 1)  # of a layer at a token, before compression


class LensFinding(Finding):
    """Result of `gpt lens`: mean loss, rank, probability and divergence by layer.

    A tuned lens adds tuned_loss etc.; a prompt adds position_loss etc. [layer, position], and the list `positions`.
    """

    tabled: ClassVar = {"layers": ("layer",)}
    beside: ClassVar = (4, 4)

    def csv_rows(self) -> list[Row]:
        """Return a row for each layer, or, for a prompt, for each layer at each position."""
        if "positions" not in self.lists:
            return super().csv_rows()
        return [
            {"position": at["position"], "token": at["token"], "next": at["next"], "layer": row["layer"]}
            | {_COLUMNS.get(key, key): cell for key, cell in row.items()}
            for at in self.lists["positions"]
            for row in at["layers"]
        ]

    def parts(self, width: int = WIDTH) -> list[Rows | str]:
        """Return a table of each layer's means; for a prompt, also one of likeliest next tokens by position and layer.

        For several training steps, return a table of the loss and one of the divergence: a row for each step, a column
        for each layer. If not all layers fit, the tables show evenly spaced layers, including the last.
        """
        layers, tuned = self["loss"].coords["layer"], "tuned_loss" in self
        if self.stacked:
            shown = spaced(len(layers), (width - 8) // _CELL)
            names = [f"L{layers[n]}" for n in shown]

            def of_measure(name: str) -> Rows:
                return table_by_step(self, names, lambda at: [cell_at(at[name], (n,), 3) for n in shown])

            return [part for name in GAINS for part in (name, of_measure(name))]
        headings, columns = [*MEASURES], [cells(self[name], 1 if name == "rank" else 4) for name in MEASURES]
        if tuned:
            headings = [word for name in GAINS for word in (name, f"{name}, tuned", "gain")]
            names = [each for name in GAINS for each in (name, f"tuned_{name}", f"{name}_gain")]
            columns = [cells(self[name], 3, with_error=name.endswith("_gain")) for name in names]
        means = [("layer", *headings), *zip(map(str, layers), *columns, strict=True)]
        if not (positions := self.lists.get("positions")):
            return [means]
        key, shown = "tuned_token" if tuned else "token", spaced(len(layers), (width - _LABEL - 4) // (_LABEL + 4))
        rows = ((at["token"], *(at["layers"][n][key] for n in shown)) for at in positions)
        guesses = (tuple(quoted(token, _LABEL) for token in row) for row in rows)
        return [[("token", *(f"L{layers[n]}" for n in shown)), *guesses], means]

    def legend(self) -> Iterator[str]:
        """Yield lines that name the text that the model read, and explain the columns."""
        about, of_prompt, tuned = self.about, "position" in self.coords, self.about.get("tuned")
        source = "the prompt" if of_prompt else self.source
        if self.stacked:
            means = "loss of the true next token after each layer, and divergence from the last layer of the same step"
            yield f"{about['run']}, by step: {counted(about['tokens'], 'token')} of {source}"
        else:
            means = "loss, rank (from 1) and probability of the true next token; divergence from the last layer"
            yield f"{self._model}: {counted(about['tokens'], 'token')} of {source}"
            if of_prompt:
                yield "each row: a token of the prompt, and the most probable next token after each layer"
        if tuned is None:
            yield f"{means} (nats)"
        else:
            trained_on = visible(", ".join(source_names(tuned["text"])))
            yield f"tuned: through maps that were trained on {trained_on} in {counted(tuned['steps'], 'step')}"
            yield "loss of the true next token, divergence from the last layer (nats); gain: how much the maps lower it"
        if not of_prompt:
            yield "±: standard error"
        yield from steps_shown(self, "checkpoint")

    def panels(self) -> Iterator[Panel]:
        """Yield a grid of likeliest next tokens for a prompt; curves of loss, rank etc. for a text or several steps."""
        tuned = "tuned_" if "tuned_loss" in self else ""
        if positions := self.lists.get("positions", [])[-MOST_TOKENS:]:
            title = "the most probable next token after each layer, and its probability"
            title = "tuned lens: the most probable next token, and its probability" if tuned else title
            places = [each["position"] for each in positions]
            numbers = self[f"{tuned}position_token_probability"].at(position=places)
            columns = {"position": [label_of(each["token"], _LETTERS) for each in positions]}
            guesses = [[label_of(row[f"{tuned}token"], _LETTERS) for row in each["layers"]] for each in positions]
            yield heat_map(numbers, title, columns, texts=np.array(guesses, object).T)
            return
        for name in MEASURES:
            figure, lenses = self[name], {"": "logit lens", tuned: "tuned lens"} if tuned else {"": "logit lens"}
            if self.stacked:
                layers = figure.coords["layer"]
                brighter = [STEPS[n * (len(STEPS) - 3) // max(1, len(layers) - 1)] for n in range(len(layers))]
                lines = [
                    curve(figure.at(layer=layer), f"L{layer}", marker="o", color=f"#{colour}")
                    for layer, colour in zip(layers, brighter, strict=True)
                ]
            else:
                lines = [curve(self[f"{lens}{name}"], label, marker="o") for lens, label in lenses.items()]
            log = figure.scale == "rank" and bool(np.isfinite(figure.values).any())
            yield Curves(figure.title, lines, "step" if self.stacked else "layer", log=log)

    def as_page(self) -> str | None:
        """Return an HTML page: a grid (layer, token) for a prompt, else curves; None for several steps."""
        return None if self.stacked else lens_page(self.as_dict()).decode()


def lens_content(frames: Sequence[Sequence[Row]], lens: str = "") -> dict[str, object]:
    """Return data for an HTML page; `frames`, one per training step, are lists like `positions` of `gpt lens --json`.

    `lens` is the prefix of the keys to read: tuned_ or "". In the dict, `tokens` [frames, L, T] are the predicted ones,
    as indices of `texts`; `numbers` [frames, 5, L, T] are in the order of `_OF_PAGE`. Both are base64 text (`packed`).
    """
    cells = [[row for each in positions for row in each["layers"]] for positions in frames]
    shape = len(frames), len(frames[0]), len(frames[0][0]["layers"])  # [frames, T, L]
    numbers = [[[row[lens + name] for name in _OF_PAGE] for row in rows] for rows in cells]  # None is NaN
    texts = list(dict.fromkeys(row[f"{lens}token"] for rows in cells for row in rows))
    places = {text: index for index, text in enumerate(texts)}
    tokens = np.array([[places[row[f"{lens}token"]] for row in rows] for rows in cells], "<u4").reshape(shape)
    return {
        "layers": [row["layer"] for row in frames[0][0]["layers"]],
        "texts": [label_of(text, limit=None) for text in texts],
        "tokens": packed(tokens.swapaxes(1, 2).tobytes()),
        "numbers": packed(np.array(numbers, "<f4").reshape(*shape, -1).transpose(0, 3, 2, 1).tobytes()),
    }


def lens_page(report: dict[str, Any]) -> bytes:
    """Return an HTML page of `report`, which `gpt lens --json` prints: a grid for a prompt, or curves for a text."""
    positions, texts = report.get("positions"), report["text"]
    origin = {"checkpoint": report["checkpoint"], "step": report["step"], "tokens": report["tokens"]}
    tuned = report.get("tuned")
    content = {
        "origin": origin | {"source": label_of(", ".join(source_names(texts)), limit=80)},
        "tuned": tuned
        and {
            "text": label_of(", ".join(source_names(tuned["text"])), limit=80),
            "steps": tuned["steps"],
            "lens": positions and lens_content([positions], "tuned_"),
        },
        "labels": positions and [{"text": label_of(each["token"], limit=None)} for each in positions],
        "lens": positions and lens_content([positions]),
        "layers": None if positions else report["layers"],
    }
    return build_page(LENS, content)
