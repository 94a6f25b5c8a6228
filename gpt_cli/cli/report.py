"""`gpt report`: its arguments and flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt_cli.cli import completing, options


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            autocompletion=completing.run_names,
            help="Names that `gpt runs` prints, or paths; a directory of runs, such as a sweep, means all of them. "
            "Default: the newest run under runs/.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            parser=options.path,
            help="A page in .html, or a picture in .png or .svg. Default: curves in the terminal.",
        ),
    ] = None,
    axis: Annotated[
        str,
        typer.Option(
            "--axis",
            metavar="NAME",
            **options.one_of("step", "tokens", "seconds"),
            help="What the curves run along: step, tokens or seconds of training. A page begins with it.",
        ),
    ] = "step",
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt",
            metavar="TEXT",
            help="On a page, the attention of the best checkpoints to this text; it needs no snapshots.",
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show how runs trained: their curves, and in a page their samples, settings and attention too.

    Several runs are overlaid, and the settings in which they differ are listed. Runs may still be training.
    """
    given = locals()
    from gpt_cli.cli.work.report import report as work

    return work(**given)
