"""`gpt eval`: its flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt_cli.cli import completing, options


def evaluate(
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="SOURCE",
            parser=options.source,
            autocompletion=completing.texts,
            help="The text to measure. Repeatable. Default: the validation text of the run.",
        ),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            "--run",
            metavar="PATH",
            parser=options.run_path,
            autocompletion=completing.runs,
            help="A run, by its path or by its name under runs/, or a checkpoint. Repeatable. "
            "Default: the newest run under runs/.",
        ),
    ] = None,
    checkpoint: options.WhichCheckpoint = None,
    stride: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=options.whole_number(1),
            help="Tokens by which the window advances; fewer are slower and give more context. Default: the window.",
        ),
    ] = None,
    per_token: Annotated[bool, typer.Option("--per-token", help="Show the surprisal of each token.")] = False,
    memorised: Annotated[
        bool, typer.Option("--memorised", help="Also sample, and measure how much the model copies its training text.")
    ] = False,
    num_samples: Annotated[
        int | None,
        typer.Option(metavar="N", parser=options.whole_number(1, 10_000), help="Samples of --memorised. Default: 10."),
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=options.NEW_TOKENS, help="Tokens in each sample of --memorised. Default: 200."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=options.whole_number(0, options.MAX_SEED),
            help=f"Seed of --memorised, from 0 to {options.MAX_SEED}. Default: 0.",
        ),
    ] = None,
    without: options.Without = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    quantize: options.Quantize = None,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure how well trained models predict a text: nats per token, perplexity, bits per byte.

    Without --data, each run is measured on its own validation text, and gpt eval warns where that text is not the
    one that the run was trained with.
    """
    given = locals()
    from gpt_cli.cli.work.evaluate import evaluate as work

    return work(**given)
