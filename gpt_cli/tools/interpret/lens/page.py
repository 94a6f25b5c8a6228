"""Predictions of layers on pages for a browser. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.common.drawing.token_labels import label_of
from gpt_cli.text.sources import source_names
from gpt_cli.tools.pages.html_page import LENS, build_page, packed

_NUMBERS = ("token_probability", "divergence", "loss", "rank", "probability")  # NaN where the next token is unknown
CELL_BYTES = 4 * (len(_NUMBERS) + 1)  # of a layer at a token, before compression


def lens_content(frames: Sequence[Sequence[Row]], lens: str = "") -> dict[str, object]:
    """Encode the positions of `gpt lens --json`, of each frame, as the content of a page: numbers [frames, 5, L, T].

    `tokens` [frames, L, T] are places in `texts`; `lens` begins the keys of predictions.
    """
    cells = [[row for each in positions for row in each["layers"]] for positions in frames]
    shape = len(frames), len(frames[0]), len(frames[0][0]["layers"])  # [frames, T, L]
    numbers = [
        [[np.nan if row[lens + name] is None else row[lens + name] for name in _NUMBERS] for row in rows]
        for rows in cells
    ]
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
    """Build the page of what `gpt lens --json` prints: a grid of a prompt, or the curves of a text."""
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
