"""`gpt info`: its arguments and flags."""

from __future__ import annotations

from typing import Annotated

import typer

from gpt_cli.cli import options
from gpt_cli.cli.importing import importing_torch


def info(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            parser=options.source,
            help="A config (file or shipped name), a run directory or a checkpoint. Default: the newest run.",
        ),
    ] = None,
    checkpoint: options.WhichCheckpoint = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Count parameters, operations and memory; of a checkpoint, verify every byte."""
    given = locals()
    with importing_torch():
        from gpt_cli.cli.work.info import info as work
    return work(**given)
