"""`gpt explain`: its flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt_cli.cli import options
from gpt_cli.explaining.names import EXAMPLES, FORMATS, STUDIES
from gpt_cli.language import LANGUAGES


def explain(
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    run: options.WhichRun = None,
    checkpoint: options.WhichCheckpoint = None,
    layer: Annotated[
        int | None,
        typer.Option(metavar="N", parser=options.whole_number(0), help="The head's layer, from 0. Default: 0."),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option(metavar="N", parser=options.whole_number(0), help="The head in its layer, from 0. Default: 0."),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(metavar="N|all", help="The position of the token that looks, from 0, or all. Default: the last."),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            **options.one_of(*EXAMPLES),
            help="A published example instead of a model: journey, six tokens of three numbers.",
        ),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            **options.one_of(*STUDIES),
            help=f"A study of one idea instead of a head: {', '.join(STUDIES)}.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", parser=options.path, help="With --study: also draw it, as a .png or .svg file."
        ),
    ] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Keep the last tokens of a prompt that is too long.")
    ] = False,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            **options.one_of(*FORMATS),
            help="terminal, markdown or html. Default: terminal.",
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", **options.one_of(*LANGUAGES), help="en or zh. Default: the language of help and errors."
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Work through one head, step by step.

    Every step has its formula, its shape and its numbers. With --example it works a published example, with --study
    a study of one idea; neither needs a prompt.
    """
    given = locals()
    from gpt_cli.cli.work.explain import explain as work

    return work(**given)
