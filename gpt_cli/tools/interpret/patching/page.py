"""Shares that patches recover, on pages for a browser. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.common.drawing.token_labels import label_of
from gpt_cli.tools.interpret.patching.request import PARTS
from gpt_cli.tools.pages.html_page import PATCH, build_page, packed

_NUMBERS = ("recovered", "recovered_error", "estimate")  # NaN where a row has none


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
