"""The flags of every command that are no fields of a request."""

from __future__ import annotations

from typing import Annotated

import typer


def _set_debug(context: typer.Context, value: bool) -> bool:
    context.find_root().obj["debug"] |= value
    return value


Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object, the last line of stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no progress and no notices.")]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug", callback=_set_debug, expose_value=False, help="Print a traceback when something goes wrong."
    ),
]
