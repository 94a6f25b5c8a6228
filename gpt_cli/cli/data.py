"""`gpt data`: its commands and their flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt_cli.cli import options

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="List and fetch corpora, and count what a text contains."
)


@app.command("list", epilog="Example: gpt data list")
def list_entries(json: options.Json = False, quiet: options.Quiet = False) -> None:
    """List the corpora that --data knows by name."""
    given = locals()
    from gpt_cli.cli.work.data import list_entries as work

    return work(**given)


@app.command(epilog="Example: gpt data fetch tinyshakespeare --out data")
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names that `gpt data list` prints, or all.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", parser=options.path, help="Also write the text to this directory."),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Fetch corpora into the per-user cache, check their digests, and print their paths."""
    given = locals()
    from gpt_cli.cli.work.data import fetch as work

    return work(**given)


@app.command(epilog="Example: gpt data stats my.txt")
def stats(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            parser=options.source,
            help="A file, directory, glob, - for stdin, or a name that `gpt data list` prints.",
        ),
    ],
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Count the documents, characters, bytes and lines of a text."""
    given = locals()
    from gpt_cli.cli.work.data import stats as work

    return work(**given)
