"""`gpt info`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpt_cli import api
from gpt_cli.amounts import size
from gpt_cli.cli.commands import Command
from gpt_cli.cli.terminal import Console, table
from gpt_cli.errors import inert

if TYPE_CHECKING:
    from gpt_cli.measuring.info import Info


def show(result: Info, console: Console) -> None:
    """Print a table of the facts."""
    rows: list[tuple[str, str]] = []
    for key, value in result.as_dict().items():
        name = key.replace("_bytes", "_memory").replace("_", " ")
        if isinstance(value, dict):
            rows.append((name, ""))
            rows += [(f"  {part}", _written(key, number)) for part, number in value.items()]
        elif isinstance(value, list):
            rows.append((name, ", ".join(map(str, value))))
        elif value is None:
            rows.append((name, "none"))
        elif value is True:
            rows.append((name, "every byte"))
        elif isinstance(value, float) and "bytes" not in key:
            rows.append((name, f"{value:.4g}"))
        else:
            rows.append((name, _written(key, value)))
    console.result(table(rows))


def _written(key: str, value: float | str) -> str:
    if isinstance(value, str):
        return inert(value)
    return size(round(value)) if "bytes" in key else f"{value:,}"


command = Command(api.info, show, "gpt info small, gpt info runs/tiny")
