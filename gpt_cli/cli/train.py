"""`gpt train`: its flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt_cli.cli import completing, options


def train(
    context: typer.Context,
    config: options.ConfigFile = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="SOURCE",
            parser=options.source,
            autocompletion=completing.texts,
            help="The text: a file, directory, glob, - for stdin, or a name that `gpt data list` prints. Repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", parser=options.path, help="The run directory. Default: runs/<config name>."
        ),
    ] = None,
    settings: options.SetFlags = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    compile: Annotated[  # noqa: A002
        str | None,
        typer.Option(
            "--compile",
            metavar="WHEN",
            autocompletion=completing.words("auto", "on", "off"),
            help="Compile the blocks with torch: auto, on or off.",
        ),
    ] = None,
    threads: options.Threads = None,
    seed: Annotated[
        str | None,
        typer.Option(
            "--seed",
            metavar="N",
            help=f"Seed of weights, batches and dropout, from 0 to {options.MAX_SEED}.",
        ),
    ] = None,
    max_steps: Annotated[str | None, typer.Option("--max-steps", metavar="N", help="Optimizer steps.")] = None,
    max_time: Annotated[
        str | None,
        typer.Option(
            "--max-time",
            metavar="TIME",
            help="Train for a time such as 90s, 5m or 1h30m instead of --max-steps; "
            "the learning rate follows the clock.",
        ),
    ] = None,
    watch: Annotated[
        str | None,
        typer.Option(
            "--watch",
            metavar="TEXT",
            help="Keep snapshots of the attention to this text while the model trains, for gpt heads --over-training.",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            metavar="N",
            parser=options.whole_number(1, 1024),
            help="Share each step among so many processes of this machine, such as one for each GPU, to the same "
            "result. Under torchrun or srun leave it out.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the newest intact checkpoint in --out.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    init_from: Annotated[
        Path | None,
        typer.Option(
            "--init-from",
            metavar="PATH",
            parser=options.run_path,
            autocompletion=completing.runs,
            help="Begin with the weights, the sizes and the tokenizer of a run, a checkpoint or a directory of "
            "transformers.",
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Train a model on text and save it, with its tokenizer, in a run directory.

    Ctrl-C saves the last step and ends; --resume continues from there, to the same result. Ctrl-C again, a second
    later, ends at once.
    """
    given = locals()
    from gpt_cli.cli.work.train import train as work

    return work(**given)
