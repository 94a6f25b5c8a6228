"""Format an explanation as text for a terminal, as Markdown, or as an HTML page."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len

from gpt_cli.common.language import say
from gpt_cli.common.tables import WORD, filled, right_aligned
from gpt_cli.tools.explain.explanation import Explanation, Step, label_text
from gpt_cli.tools.pages.html_page import hash_of_source

_MAX_COLUMNS = 12  # of a row in Markdown and on a page, where columns have no names
_MAX_LABEL = 32  # cells in a terminal
_ROUNDED = "Rounded to 4 decimals; … stands for omitted columns. --json prints every number in full."
_STYLE = """
:root { color-scheme: light dark; }
body { margin: 1rem auto; max-width: 70rem; padding: 0 1rem;
  font: 15px/1.5 system-ui, "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; } h3 { font-size: 1rem; margin: 1.4rem 0 .2rem; }
div { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .1rem .6rem; text-align: right; border-bottom: 1px solid #8884; white-space: pre; }
th { font-weight: normal; opacity: .75; unicode-bidi: isolate; }
code { font-family: ui-monospace, monospace; }
"""


@dataclass(frozen=True)
class Table:
    """A table of an explanation: its headings, its cells, and the sentences below it."""

    part: str  # the title of a part of the explanation, in its first table; else empty
    headings: Sequence[tuple[str, str]]  # a title, and a formula with a shape
    header: Sequence[str]
    rows: Sequence[Sequence[str]]  # a label, then numbers
    notes: Sequence[str]
    whole: bool  # whether every column has a name, so that none is left out


def to_terminal(explanation: Explanation, language: str, width: int) -> str:
    """Return an explanation as text; columns beyond `width` follow below, or are left out if columns have no names."""
    lines = [say(explanation.title, language), *([explanation.source] if explanation.source else [])]
    for table in _tables(explanation, language):
        lines += ["", f"== {table.part}", ""] if table.part else [""]
        colon = "：" if language == "zh" else ":"
        lines += [f"{title}{colon}  {formula}" for title, formula in table.headings]
        lines += _aligned([table.header, *table.rows], width, whole=table.whole)
        lines += [line for note in table.notes for line in filled(WORD.findall(note), width)]
    return "\n".join([*lines, "", *filled(WORD.findall(say(_ROUNDED, language)), width)])


def to_markdown(explanation: Explanation, language: str) -> str:
    """Return an explanation as Markdown: a title, a section for each part, and a table for each step."""

    def cells(row: Sequence[str]) -> str:
        return "| " + " | ".join(map(_escaped, row)) + " |"

    lines = [f"# {say(explanation.title, language)}"]
    lines += ["", _escaped(explanation.source)] if explanation.source else []
    for table in _tables(explanation, language):
        lines += ["", f"## {table.part}", ""] if table.part else [""]
        lines += [f"**{title}** `{formula}`  " for title, formula in table.headings]
        header, *rows = _cut(table)
        lines += ["", cells(header), "|" + " ---: |" * len(header), *map(cells, rows)]
        lines += [line for note in table.notes for line in ("", _escaped(note))]
    return "\n".join([*lines, "", say(_ROUNDED, language)])


def _escaped(text: str) -> str:
    """Escape the characters that have a meaning in Markdown."""
    return re.sub(r"([\\`*_~\[\]<>&$|])", r"\\\1", text)


def to_html(explanation: Explanation, language: str) -> str:
    """Return an explanation as an HTML page that runs no script and makes no network request."""

    def row(cells: Sequence[str], kind: str = "td") -> str:
        label, *others = map(html.escape, cells)
        return f"<tr><th>{label}</th>{''.join(f'<{kind}>{text}</{kind}>' for text in others)}</tr>"

    title = html.escape(say(explanation.title, language))
    policy = f"default-src 'none'; style-src {hash_of_source(_STYLE)}"
    lines = [
        f'<!doctype html><html lang="{"zh-CN" if language == "zh" else "en"}"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>",
        *([f"<p>{html.escape(explanation.source)}</p>"] if explanation.source else []),
    ]
    for table in _tables(explanation, language):
        lines += [f"<h2>{html.escape(table.part)}</h2>"] if table.part else []
        for name, formula in table.headings:
            lines.append(f"<h3>{html.escape(name)}</h3><code>{html.escape(formula)}</code>")
        header, *rows = _cut(table)
        lines += ["<div><table>", row(header, "th"), *map(row, rows), "</table></div>"]
        lines += [f"<p>{html.escape(note)}</p>" for note in table.notes]
    lines += [f"<p>{html.escape(say(_ROUNDED, language))}</p>", "</body></html>"]
    return "\n".join(lines)


def _tables(explanation: Explanation, language: str) -> Iterator[Table]:
    """Yield a table for each step, but one table for adjacent steps whose `beside` is true."""
    groups: list[list[Step]] = []
    for step in explanation.steps:
        if groups and step.beside and groups[-1][-1].beside:
            groups[-1].append(step)
        else:
            groups.append([step])
    number, part = 0, ""
    for group in groups:
        first, headings = group[0], []
        begins = first.part != part
        number, part = (0 if begins else number), first.part
        for step in group:
            number += 1
            headings.append((f"{number}. {step.title_in(language)}", f"{step.formula}  {list(step.numbers.shape)}"))
        if first.beside:
            header = ["", *(step.title_in(language) for step in group)]
            columns = [label_text(label, language) for label in first.columns]
            rows = [[label, *(_number(step.numbers[0, i]) for step in group)] for i, label in enumerate(columns)]
        else:
            labels = first.columns or list(map(str, range(first.numbers.shape[1])))
            header = ["", *(label_text(label, language) for label in labels)]
            names = [label_text(label, language) for label in first.rows]
            rows = [[name, *map(_number, row)] for name, row in zip(names, first.numbers, strict=True)]
        notes = [label_text(note, language) for step in group for note in step.notes]
        title = say(explanation.parts[part], language) if begins else ""
        yield Table(title, headings, header, rows, notes, whole=bool(first.columns))


def _number(number: float) -> str:
    return "-∞" if number == -np.inf else f"{number:z.4f}"  # z: zero has no sign


def _cut(table: Table) -> list[list[str]]:
    """Return a table's header and rows; if columns have no names, an ellipsis replaces all after the twelfth."""
    rows = [list(row) for row in (table.header, *table.rows)]
    if table.whole or len(rows[0]) <= _MAX_COLUMNS + 1:
        return rows
    return [[*row[: _MAX_COLUMNS + 1], "…"] for row in rows]


def _aligned(rows: Sequence[Sequence[str]], width: int, *, whole: bool) -> Iterator[str]:
    """Yield a table's lines; columns beyond `width` follow below if `whole`, else an ellipsis replaces them."""
    label = min(_MAX_LABEL, max(cell_len(row[0]) for row in rows))
    # rows may have thousands of numbers: take no more than could fit
    columns = list(zip(*(row if whole else row[: width + 1] for row in rows), strict=True))[1:]
    widths = [max(map(cell_len, column)) for column in columns]
    first = 0
    while first < len(columns):
        free_width, end = width - label - (0 if whole else 3), first
        while end < len(columns) and (widths[end] + 2 <= free_width or end == first):
            free_width -= widths[end] + 2
            end += 1
        more = ["…"] if not whole and end + 1 < len(rows[0]) else []
        for number, row in enumerate(rows):
            cells = (right_aligned(columns[at][number], widths[at]) for at in range(first, end))
            yield "  ".join([right_aligned(row[0], label), *cells, *more]).rstrip()
        first = end if whole else len(columns)
