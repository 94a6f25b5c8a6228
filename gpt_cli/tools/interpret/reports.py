"""What reports of this package share: a file of every kind, and a line that names it. Needs no torch."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.common.drawing.file_types import PICTURES
from gpt_cli.common.drawing.token_labels import inert_cell
from gpt_cli.common.files import write_durably
from gpt_cli.common.host import Host, Notify, ignored
from gpt_cli.common.results import WIDTH, Result, Screen
from gpt_cli.common.tables import Rows, table
from gpt_cli.errors import counted, visible

MAX_ROWS = 20  # of a table by step


@dataclass(frozen=True, kw_only=True)
class Report(Result, ABC):
    """A result that may be in a file, whose ending says what it contains."""

    out: str | None = None
    drawn_by: ClassVar[str] = ""  # a function, imported only when it draws, because matplotlib takes a second

    @abstractmethod
    def parts(self, width: int = WIDTH) -> Sequence[Rows | str]:
        """Tables, and the lines between them."""

    def as_text(self, width: int = WIDTH) -> str:
        """The same with empty lines between them."""
        return "\n\n".join(part if isinstance(part, str) else table(part) for part in self.parts(width))

    def legend(self) -> Iterable[str]:
        """What the tables are about, in lines."""
        return ()

    def show(self, screen: Screen) -> None:
        """The tables, and their legend on stderr; nothing where they are in a file."""
        if self.out is None:
            for line in self.legend():
                screen.notice(line)
            super().show(screen)

    @abstractmethod
    def csv_rows(self) -> Sequence[Row]:
        """The rows of a CSV."""

    def as_csv(self) -> bytes:
        """The rows as CSV."""
        return as_csv(self.csv_rows())

    def as_picture(self, kind: str = "png", notice: Notify = ignored) -> bytes | None:
        """A picture, where there is one; `notice` hears of characters that no font has."""
        if not self.drawn_by:
            return None
        module, _, function = self.drawn_by.rpartition(".")
        return getattr(import_module(f"gpt_cli.tools.interpret.{module}"), function)(self.as_dict(), notice, kind=kind)

    def as_file(self, ending: str, notice: Notify) -> bytes:
        """The report as .json, .csv, .html or one of PICTURES; the request has checked the ending."""
        if ending in PICTURES:
            return self.as_picture(ending[1:], notice) or b""
        content = {".csv": self.as_csv, ".html": lambda: (self.as_page() or "").encode()}
        return content.get(ending, lambda: as_json(self.as_dict()))()


Made = TypeVar("Made", bound=Report)


def written(report: Made, host: Host, out: Path | None, *numbers: tuple[int, str]) -> Made:
    """The report, once it is in the file of the request; a notice names the file and how many things it has."""
    if out is None:
        return report
    with host.working(f"writing {visible(out)}"):
        write_durably(out, [report.as_file(out.suffix.lower(), host.notice)])
    said = ", ".join(counted(number, noun) for number, noun in numbers)
    host.notice(f"wrote {visible(out)}" + (f": {said}" if said else ""))
    return replace(report, out=str(out))


def evenly(steps: Sequence[Any], most: int) -> list[Any]:
    """At most a number of steps, evenly chosen, the first and the last among them."""
    count = min(most, len(steps))
    return [steps[round(i * (len(steps) - 1) / max(1, count - 1))] for i in range(count)]


def spaced(number: int, fitting: int) -> list[int]:
    """At most as many of 0 to number - 1 as fit, evenly spaced, the last one among them; at least that."""
    count = min(number, max(1, fitting))
    return sorted(number - 1 - n * number // count for n in range(count))


def steps_shown(steps: Sequence[Any], noun: str) -> list[str]:
    """The line of a legend that says that a table has not all steps, where that is so."""
    if len(steps) <= MAX_ROWS:
        return []
    return [f"{MAX_ROWS} of {counted(len(steps), noun)} are shown; --json and --out have all"]


def as_json(report: Mapping[str, Any]) -> bytes:
    """A report as the one line that --json prints."""
    return f"{json.dumps(report, ensure_ascii=False, allow_nan=False)}\n".encode()


def as_csv(rows: Sequence[Row], layers: Sequence[Row] = ()) -> bytes:
    """The rows of heads as CSV, with their keys as its first line; None is empty.

    A list has columns for each of its entries: raises_1_token. What a whole layer is worth stands in the rows of its
    heads, as layer_loss_change. No text is a formula.
    """
    of_layer = {row["layer"]: {f"layer_{key}": row[key] for key in row if key != "layer"} for row in layers}
    flat = [_flat(row | of_layer.get(row["layer"], {})) for row in rows]
    columns = [*dict.fromkeys(key for row in flat for key in row)]
    text = io.StringIO()
    text.write(f"{','.join(columns)}\n")
    # a carriage return in a token is quoted too
    writer = csv.DictWriter(text, columns, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows(
        {key: inert_cell(cell) if isinstance(cell, str) else cell for key, cell in row.items()} for row in flat
    )
    return text.getvalue().encode()


def _flat(row: Mapping[str, Any], name: str = "") -> Row:
    """A row without lists: each entry has its number in the key, and keys of its own after that."""
    found = {}
    for key, value in row.items():
        parts = {str(n): part for n, part in enumerate(value, 1)} if isinstance(value, list) else value
        if isinstance(parts, Mapping):
            found |= _flat(parts, f"{name}{key}_")
        else:
            found[f"{name}{key}"] = value
    return found
