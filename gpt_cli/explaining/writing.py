"""An explanation as text: for a terminal, as Markdown, or as a page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len, set_cell_size

from gpt_cli.explaining.report import Note, Report, Step
from gpt_cli.explaining.words import say
from gpt_cli.inspecting.page import hash_of_source

_MAX_COLUMNS = 12  # of a row in Markdown and on a page
_MAX_LABEL = 32  # cells in a terminal
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
class Block:
    """A table as it is shown: what it is called, its cells, and what is said below it."""

    part: str  # of the first block of a part, the title of the part
    headings: Sequence[tuple[str, str]]  # a title, and a formula with a shape
    header: Sequence[str]
    rows: Sequence[Sequence[str]]  # a label, then numbers
    notes: Sequence[str]


def to_terminal(report: Report, language: str, width: int) -> str:
    """Plain lines of at most `width` cells, where a row is cut that is longer."""
    lines = [say(report.title, language)]
    for block in _blocks(report, language):
        if block.part:
            lines += ["", f"== {block.part}"]
        lines.append("")
        lines += [f"{title}:  {formula}" if formula else title for title, formula in block.headings]
        lines += _aligned([block.header, *block.rows], width)
        lines += block.notes
    return "\n".join([*lines, "", say(Note("rounded"), language)])


def to_markdown(report: Report, language: str) -> str:
    """A title, a section a part, and a table a step."""

    def cells(row: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in _cut(row)) + " |"

    lines = [f"# {say(report.title, language)}"]
    for block in _blocks(report, language):
        if block.part:
            lines += ["", f"## {block.part}"]
        lines.append("")
        lines += [f"**{title}**" + (f" `{formula}`" if formula else "") + "  " for title, formula in block.headings]
        lines += ["", cells(block.header), "|" + " ---: |" * len(_cut(block.header))]
        lines += map(cells, block.rows)
        lines += [line for note in block.notes for line in ("", note)]
    return "\n".join([*lines, "", say(Note("rounded"), language)])


def to_html(report: Report, language: str) -> str:
    """A page that runs nothing and asks for nothing."""

    def row(cells: Sequence[str], *kinds: str) -> str:
        first, others = kinds
        texts = list(map(html.escape, _cut(cells)))
        return (
            f"<tr><{first}>{texts[0]}</{first}>"
            + "".join(f"<{others}>{text}</{others}>" for text in texts[1:])
            + "</tr>"
        )

    title = html.escape(say(report.title, language))
    policy = f"default-src 'none'; style-src {hash_of_source(_STYLE)}"
    lines = [
        f'<!doctype html><html lang="{"zh-CN" if language == "zh" else "en"}"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>",
    ]
    for block in _blocks(report, language):
        if block.part:
            lines.append(f"<h2>{html.escape(block.part)}</h2>")
        for name, formula in block.headings:
            lines.append(f"<h3>{html.escape(name)}</h3>" + (f"<code>{html.escape(formula)}</code>" if formula else ""))
        lines += ["<div><table>", row(block.header, "th", "th"), *(row(cells, "th", "td") for cells in block.rows)]
        lines.append("</table></div>")
        lines += [f"<p>{html.escape(note)}</p>" for note in block.notes]
    lines += [f"<p>{html.escape(say(Note('rounded'), language))}</p>", "</body></html>"]
    return "\n".join(lines)


def _blocks(report: Report, language: str) -> list[Block]:
    """A block for each step; those that are beside each other share one."""
    groups: list[list[Step]] = []
    for step in report.steps:
        if groups and step.beside and groups[-1][-1].beside:
            groups[-1].append(step)
        else:
            groups.append([step])
    blocks, number, part = [], 0, ""
    for group in groups:
        first, headings = group[0], []
        begins = first.part != part
        number, part = (0 if begins else number), first.part
        for step in group:
            number += 1
            shape = f"[{', '.join(map(str, step.numbers.shape))}]"
            headings.append((f"{number}. {_title(step, language)}", f"{step.formula}  {shape}" if step.formula else ""))
        if first.beside:
            header = ["", *(_title(step, language) for step in group)]
            columns = [say(label, language) for label in first.columns]
            rows = [[label, *(_number(step.numbers[0, i]) for step in group)] for i, label in enumerate(columns)]
        else:
            labels = first.columns or list(map(str, range(first.numbers.shape[1])))
            header = ["", *(say(label, language) for label in labels)]
            names = [say(label, language) for label in first.rows]
            rows = [[name, *map(_number, row)] for name, row in zip(names, first.numbers, strict=True)]
        notes = [say(note, language) for step in group for note in step.notes]
        blocks.append(Block(say(Note(part), language) if begins else "", headings, header, rows, notes))
    return blocks


def _title(step: Step, language: str) -> str:
    return say(step.title or Note(step.name), language)


def _number(number: float) -> str:
    if number == -np.inf:
        return "-∞"
    text = f"{number:.4f}"
    return "0.0000" if text == "-0.0000" else text


def _cut(row: Sequence[str]) -> list[str]:
    return list(row) if len(row) <= _MAX_COLUMNS + 1 else [*row[: _MAX_COLUMNS + 1], "…"]


def _aligned(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Rows with their columns below each other, as many as fit."""
    label = min(_MAX_LABEL, max(cell_len(row[0]) for row in rows))
    widths = [max(cell_len(row[column]) for row in rows) for column in range(1, min(len(rows[0]), width))]
    room, fitting = width - label, 0
    while fitting < len(widths) and widths[fitting] + 2 <= room - (3 if fitting + 1 < len(widths) else 0):
        room -= widths[fitting] + 2
        fitting += 1
    lines = []
    for row in rows:
        cells = [" " * (size - cell_len(cell)) + cell for size, cell in zip(widths[:fitting], row[1:], strict=False)]
        more = ["…"] if fitting < len(row) - 1 else []
        lines.append("  ".join([_padded(row[0], label), *cells, *more]).rstrip())
    return lines


def _padded(label: str, width: int) -> str:
    return " " * (width - cell_len(label)) + label if cell_len(label) <= width else set_cell_size(label, width)
