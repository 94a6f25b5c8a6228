"""A finding on heads as one page for a browser. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpt_cli.attention_maps.head_metrics import COLUMNS, LOSS_CHANGE, ROLES, Row
from gpt_cli.common.drawing.token_labels import label_of
from gpt_cli.text.sources import source_names
from gpt_cli.tools.interpret.finding_tables import evenly
from gpt_cli.tools.interpret.heads.tables import shown_peak
from gpt_cli.tools.pages.html_page import HEADS, build_page

_PARTNERS = 5  # of a head, in each direction
_MAX_TEXT = 80  # characters of a prompt
_COLUMNS = (*COLUMNS, LOSS_CHANGE, "mean_size", "ratio")
_MOST_PASSAGES = 20_000  # of all steps of a film: a page of about 20 MB
_PLACES = {label: column for column, label, _ in ROLES}


def heads_page(report: Mapping[str, Any]) -> bytes:
    """Build the page of what `gpt heads --json` prints; of circuits it shows the strongest partners of each head.

    With `steps` it is a film of them, evenly chosen where their passages are too many.
    """
    circuits, steps = report.get("circuits"), report.get("steps") or [report]
    rows = steps[-1]["heads"]
    chosen = evenly(steps, max(2, _MOST_PASSAGES // max(1, sum(len(row.get("passages", ())) for row in rows))))
    partners = _partners(circuits["composition"]) if circuits else {}
    content = {
        "text": label_of(", ".join(source_names(report["text"])), _MAX_TEXT),
        **{name: report[name] for name in ("tokens", "checkpoint")},
        "steps": [at["step"] for at in chosen],
        "all_steps": len(steps),
        "columns": [name for name in _COLUMNS if name in rows[0]],
        "baseline": circuits and circuits["baseline"],
        "frames": [[_content(row, partners if circuits else None) for row in at["heads"]] for at in chosen],
    }
    return build_page(HEADS, content)


def _content(row: Row, partners: Mapping[tuple[int, int], Row] | None) -> Row:
    numbers = ("layer", "head", *_COLUMNS, f"{LOSS_CHANGE}_error")
    content = {name: row[name] for name in numbers if name in row}
    content["role"] = _PLACES.get(row.get("label") or "")
    if "passages" in row:
        content["passages"] = [_passage(passage) for passage in row["passages"]]
    for name, first, second in (("ov", "reads", "writes"), ("qk", "queries", "keys")):
        if name in row:
            content[name] = [_pair(part["singular_value"], part[first], part[second]) for part in row[name]]
    if "raises" in row:
        raised, lowered = ([entry["token"] for entry in row[name]] for name in ("raises", "lowers"))
        content["query"] = [_pair(None, raised, lowered)]
    if partners is not None:
        content["composed"] = partners.get((row["layer"], row["head"]), {"receives": [], "gives": []})
    return content


def _passage(passage: Row) -> Row:
    """Label the tokens of a passage; a label is empty where a character is at a token before."""
    looks = [{**look, "token": _shown(look["token"])} for look in passage["looks_at"]]
    tokens = [_shown(token) for token in passage["tokens"]]
    position = passage["place"] + passage["peak"]
    numbers = {"value": passage["value"], "shades": passage["shades"], "peak": shown_peak(passage)}
    return numbers | {"place": position, "tokens": tokens, "looks_at": looks}


def _shown(token: str) -> str:
    return label_of(token, None) if token else ""


def _pair(value: float | None, first: Iterable[str], second: Iterable[str]) -> Row:
    return {
        "value": value,
        "first": [label_of(token) for token in first],
        "second": [label_of(token) for token in second],
    }


def _partners(composition: Iterable[Row]) -> dict[tuple[int, int], Row]:
    """Return the heads below and above each head with which it composes most, as [kind, layer, head, score]."""
    partners = dict[tuple[int, int], Row]()
    for pair in composition:  # the highest score first
        lower, higher = ((pair[f"{end}_layer"], pair[f"{end}_head"]) for end in ("from", "to"))
        for head, direction, other in ((higher, "receives", lower), (lower, "gives", higher)):
            of_head = partners.setdefault(head, {"receives": [], "gives": []})[direction]
            if len(of_head) < _PARTNERS:
                of_head.append([pair["kind"], *other, pair["score"]])
    return partners
