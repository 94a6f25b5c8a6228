"""`gpt bench`: its flags."""

from __future__ import annotations

from typing import Annotated

import typer

from gpt_cli.cli import completing, options


def bench(
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            autocompletion=completing.configs,
            help="A YAML file or a shipped config. Default: small, or with --attention multi-head.",
        ),
    ] = None,
    attention: Annotated[
        bool,
        typer.Option("--attention", help="Compare the forms of attention; trains a model of each for train.max_steps."),
    ] = False,
    busy: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=options.whole_number(1, 1000),
            help="Measure beside N programs that keep a core busy each.",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            metavar="N",
            parser=options.whole_number(2, 1024),
            help="Measure N processes that train together, beside one with the same cores.",
        ),
    ] = None,
    settings: options.SetFlags = None,
    rounds: Annotated[
        int, typer.Option(metavar="N", parser=options.whole_number(1, 1000), help="Timed rounds, after one to warm up.")
    ] = 5,
    tokens: Annotated[
        int,
        typer.Option(metavar="N", parser=options.whole_number(1, 100_000), help="New tokens of each sampled sequence."),
    ] = 100,
    device: options.Device = None,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Time training and sampling in turns with plain versions, beside what this machine can do at best."""
    given = locals()
    from gpt_cli.cli.work.bench import bench as work

    return work(**given)
