"""Show passages and circuits of heads: tables for a terminal, and a page that also has the scores. Needs no torch."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from gpt_cli.attention_maps.head_metrics import COLUMNS, LOSS_CHANGE, Row, head_label
from gpt_cli.common.drawing.token_labels import label_of, quoted
from gpt_cli.common.tables import Rows, cut, filled
from gpt_cli.text.sources import source_names
from gpt_cli.tools.interpret.finding import evenly
from gpt_cli.tools.pages.html_page import HEADS, build_page

MOST_PAIRS = 10  # of heads that compose, in a terminal
BRACKETS = "[[", "]]"
_SHARE = 0.6  # of a line: what comes before a peak explains it
_PARTNERS = 5  # of a head, in each direction
_MAX_TEXT = 80  # characters of a prompt
_COLUMNS = (*COLUMNS, LOSS_CHANGE, "mean_size", "ratio")
_MOST_PASSAGES = 20_000  # of all steps of a film: a page of about 20 MB


def of_passages(heads: Iterable[Row], width: int, marks: tuple[str, str]) -> Rows:
    """Return a table of heads' passages, cut to fit `width`; `marks` enclose the token where the head writes most."""
    rows = [("head", "mean", "size", "where it writes most")]
    for row in heads:
        name, mean = head_label(row), f"{row['mean_size'] or 0:.2f}"
        for passage in row["passages"]:
            rows.append((name, mean, f"{passage['value']:.2f}", marked(passage, width - 22, marks)))
            name = mean = ""
    return rows


def marked(passage: Row, width: int, marks: tuple[str, str]) -> str:
    """Return a passage in one line, cut to `width` columns around the token of largest norm, which `marks` enclose."""
    peak = shown_peak(passage)
    sides = "".join(passage["tokens"][:peak]), "".join(passage["tokens"][peak + 1 :])
    before, after = (_shown(re.sub(" {2,}", " ", side)) for side in sides)
    token = label_of(passage["tokens"][peak])
    columns = max(2, width - cell_len(token) - 4)
    left = min(cell_len(before), max(int(_SHARE * columns), columns - cell_len(after)))
    if cell_len(before) > left:
        while cell_len(before) > left - 1:
            before = before[1:]
        before = f"…{before}"
    return f"{before}{marks[0]}{token}{marks[1]}{cut(after, columns - left)}".rstrip()


def shown_peak(passage: Row) -> int:
    """Return the index of the token of largest norm; if its text is empty, of the token that shows its character."""
    tokens, peak = passage["tokens"], passage["peak"]
    return max((index for index in range(peak + 1) if tokens[index]), default=peak)


def of_pairs(circuits: Mapping[str, Any]) -> Rows:
    """Return a table of the pairs of heads with the highest composition scores."""
    rows = [("", "from", "to", "score", "above random")]
    for row in circuits["composition"][:MOST_PAIRS]:
        lower, higher = (f"L{row[f'{end}_layer']} H{row[f'{end}_head']}" for end in ("from", "to"))
        rows.append((row["kind"], lower, higher, f"{row['score']:.3f}", f"{row['excess']:+.3f}"))
    return rows


def of_directions(heads: Sequence[Row], width: int) -> list[Rows]:
    """Return two tables with a row for each head, cut to `width`: tokens of its strongest OV, or QK, direction."""
    columns = (width - 19) // 2
    tables = []
    for name, (first, second) in (("ov", ("reads", "writes")), ("qk", ("queries", "keys"))):
        rows = [("head", name.upper(), first, second)]
        for row in heads:
            strongest = row[name][0]
            one, other = (_some(strongest[key], columns) for key in (first, second))
            rows.append((head_label(row), f"{strongest['singular_value']:.3g}", one, other))
        tables.append(rows)
    return tables


def _some(tokens: Iterable[str], columns: int) -> str:
    """Join as many tokens as fit in `columns`, at least one."""
    text = next(filled((part for token in tokens for part in (quoted(token), " ")), columns))
    return text if cell_len(text) <= columns else set_cell_size(text, max(2, columns))


def heads_page(report: Mapping[str, Any]) -> bytes:
    """Return an HTML page of `report` (of `gpt heads --json`), with each head's highest composition scores, if any.

    For a report with `steps`, the page has a frame for each step, or, if that is too large, for evenly spaced steps.
    """
    circuits, steps = report.get("circuits"), report.get("steps") or [report]
    rows = steps[-1]["heads"]
    chosen = evenly(steps, max(2, _MOST_PASSAGES // max(1, sum(len(row.get("passages", ())) for row in rows))))
    partners = _partners(circuits["composition"]) if circuits else None
    content = {
        "text": label_of(", ".join(source_names(report["text"])), _MAX_TEXT),
        **{name: report[name] for name in ("tokens", "checkpoint")},
        "steps": [at["step"] for at in chosen],
        "all_steps": len(steps),
        "columns": [name for name in _COLUMNS if name in rows[0]],
        "baseline": circuits and circuits["baseline"],
        "frames": [[_content(row, partners) for row in at["heads"]] for at in chosen],
    }
    return build_page(HEADS, content)


def _content(row: Row, partners: Mapping[tuple[int, int], Row] | None) -> Row:
    content = {name: row[name] for name in ("layer", "head", *_COLUMNS, f"{LOSS_CHANGE}_error") if name in row}
    content["role"] = row.get("label") and row["label"].replace(" ", "_")
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
    """Return a passage as page data, with token labels; a label is empty if an earlier token shows the character."""
    looks = [{**look, "token": _shown(look["token"])} for look in passage["looks_at"]]
    tokens = [_shown(token) for token in passage["tokens"]]
    position = passage["place"] + passage["peak"]
    numbers = {"value": passage["value"], "shades": passage["shades"], "peak": shown_peak(passage)}
    return numbers | {"place": position, "tokens": tokens, "looks_at": looks}


def _shown(text: str) -> str:
    return label_of(text, None) if text else ""


def _pair(value: float | None, first: Iterable[str], second: Iterable[str]) -> Row:
    return {"value": value, "first": [*map(label_of, first)], "second": [*map(label_of, second)]}


def _partners(composition: Iterable[Row]) -> dict[tuple[int, int], Row]:
    """Map (layer, head) to the heads it "receives" from and "gives" to most: [kind (Q, K, V), layer, head, score]."""
    partners = dict[tuple[int, int], Row]()
    for pair in composition:  # the highest score first
        lower, higher = ((pair[f"{end}_layer"], pair[f"{end}_head"]) for end in ("from", "to"))
        for head, direction, other in ((higher, "receives", lower), (lower, "gives", higher)):
            of_head = partners.setdefault(head, {"receives": [], "gives": []})[direction]
            if len(of_head) < _PARTNERS:
                of_head.append([pair["kind"], *other, pair["score"]])
    return partners
