"""`gpt export`: its flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt_cli.cli import options


def export(
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="PATH",
            parser=options.path,
            help="A directory (hf) or a .safetensors file (safetensors).",
        ),
    ],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            parser=options.one_of("hf", "safetensors"),
            help="hf: a directory that transformers loads; safetensors: one file that gpt loads, without what only "
            "training needs.",
        ),
    ] = "hf",
    run: options.WhichRun = None,
    checkpoint: options.WhichCheckpoint = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a trained model for transformers, or as one file to share.

    An earlier export of the same name is replaced; any other directory that is not empty is refused.
    """
    given = locals()
    from gpt_cli.cli.work.export import export as work

    return work(**given)
