"""`gpt info`: its arguments and flags."""

from __future__ import annotations

from typing import Annotated

import typer

from gpt_cli.cli import completing, options


def info(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            parser=options.source,
            autocompletion=completing.configs_and_runs,
            help="A config (file or shipped name), a run directory or a checkpoint. Default: the newest run.",
        ),
    ] = None,
    checkpoint: options.WhichCheckpoint = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            "--ranks",
            metavar="N",
            parser=options.whole_number(1, 1024),
            help="Also what each of N processes that train together holds and sends.",
        ),
    ] = None,
    settings: options.SetFlags = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Count parameters, operations and memory; of a checkpoint, verify every byte."""
    given = locals()
    from gpt_cli.cli.work.info import info as work

    return work(**given)
