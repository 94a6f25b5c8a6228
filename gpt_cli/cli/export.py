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
            help="A directory (hf, handout), a .safetensors file (safetensors) or a .html file (html).",
        ),
    ],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            **options.one_of("hf", "html", "handout", "safetensors"),
            help="hf: a directory that transformers loads; safetensors: one file that gpt loads, without what only "
            "training needs; html: a page in which the model runs, offline; handout: a folder for a class, with that "
            "page and those of its attention.",
        ),
    ] = "hf",
    quantize: Annotated[
        str | None,
        typer.Option(
            "--quantize",
            metavar="NAME",
            **options.one_of("float16", "int8"),
            help="Weights of a page (html, handout): float16, or int8 in half the space. Default: float16 up to 30 MB.",
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option("--title", metavar="TEXT", help="The title of the pages (html, handout).")
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", metavar="TEXT", help="The text with which the pages open (html, handout)."),
    ] = None,
    run: options.WhichRun = None,
    checkpoint: options.WhichCheckpoint = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a trained model for transformers, as one file to share, as a page in which it runs, or for a class.

    An earlier export of the same name is replaced; any other directory that is not empty is refused.
    """
    given = locals()
    from gpt_cli.cli.work.export import export as work

    return work(**given)
