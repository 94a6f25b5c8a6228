"""`gpt data`: its commands and their flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt_cli.cli import completing, options

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="List and fetch corpora; count, prepare and verify texts."
)


@app.command("list", epilog="Example: gpt data list")
def list_entries(json: options.Json = False, quiet: options.Quiet = False) -> None:
    """List the corpora that --data knows by name."""
    given = locals()
    from gpt_cli.cli.work.data import list_entries as work

    return work(**given)


@app.command(epilog="Example: gpt data fetch tinyshakespeare --out data")
def fetch(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME", autocompletion=completing.texts, help="Names that `gpt data list` prints, or all."
        ),
    ],
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


@app.command(epilog="Example: gpt data stats my.txt, gpt data stats my.txt --config tiny")
def stats(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            parser=options.source,
            autocompletion=completing.texts,
            help="A file, directory, glob, - for stdin, or a name that `gpt data list` prints.",
        ),
    ],
    config: options.ConfigFile = None,
    settings: options.SetFlags = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Count the documents, characters, bytes and lines of a text; with --config, estimate its tokens."""
    given = locals()
    from gpt_cli.cli.work.stats import stats as work

    return work(**given)


@app.command(epilog="Example: gpt data prepare my.jsonl --config tiny")
def prepare(
    source: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE",
            parser=options.source,
            autocompletion=completing.texts,
            help="The text, as gpt train --data names it. Default: that of the config.",
            show_default=False,
        ),
    ] = None,
    config: options.ConfigFile = None,
    settings: options.SetFlags = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make the tokenizer and the tokens of a text, so that gpt train with this config starts at once.

    gpt train does the same by itself. A preparation that was stopped goes on where it was.
    """
    given = locals()
    from gpt_cli.cli.work.preparing import prepare as work

    return work(**given)


@app.command(epilog="Example: gpt data verify my.jsonl")
def verify(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            parser=options.source,
            autocompletion=completing.texts,
            help="The text, as gpt train --data names it.",
        ),
    ],
    config: options.ConfigFile = None,
    settings: options.SetFlags = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Read every byte of a text and of the tokens made from it, and compare them with their digests.

    With --config, the text is read as that config reads it: data.separator, data.text_field and so on.
    """
    given = locals()
    from gpt_cli.cli.work.preparing import verify as work

    return work(**given)
