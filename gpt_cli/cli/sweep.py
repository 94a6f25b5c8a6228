"""`gpt sweep`: its argument and flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt_cli.cli import options


def sweep(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            parser=options.path,
            help="A YAML file: base, settings, grid, or random with num_runs, and repeats.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", parser=options.path, help="Where the runs go. Default: runs/<name of the file>."
        ),
    ] = None,
    max_time: Annotated[
        str | None,
        typer.Option("--max-time", metavar="TIME", help="Train each run for a time such as 90s or 5m, not by steps."),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            metavar="N",
            parser=options.whole_number(1, 1024),
            help="Train so many runs at once, each with its share of the cores, or with a GPU of its own.",
        ),
    ] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every run and list them, but train none and write nothing.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Train a base config with lists or ranges of settings, one ordinary run each, and compare them.

    The same command continues a sweep that was stopped or killed. After a run that diverges, the next follows.
    """
    given = locals()
    from gpt_cli.cli.work.sweep import sweep as work

    return work(**given)
