"""`gpt heads`: its flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt_cli.cli import completing, options
from gpt_cli.inspecting.heads.columns import COLUMNS
from gpt_cli.inspecting.heads.report import LOSS_CHANGE, SORTABLE


def heads(
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="SOURCE",
            parser=options.source,
            autocompletion=completing.texts,
            help="The text that the heads read. Repeatable. Default: the validation text of the run.",
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=options.whole_number(2),
            help="Read about so many tokens of a text, in windows that are evenly spaced. Default: 16,384.",
        ),
    ] = None,
    run: options.WhichRun = None,
    checkpoint: options.WhichCheckpoint = None,
    layers: Annotated[str | None, typer.Option(metavar="LIST", help="Layers, such as 0,3-5. Default: all.")] = None,
    heads: Annotated[str | None, typer.Option(metavar="LIST", help="Heads, such as 0-3. Default: all.")] = None,
    ablate: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            **options.one_of("zero", "mean", "layer"),
            help="How much the loss rises without each head: its output is zero, or its mean over the text. "
            "layer: without each whole layer.",
        ),
    ] = None,
    query: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=options.whole_number(-65_536, 65_535),
            help="Show the tokens that each head raises most at this token of the prompt, from 0; -1 is the last.",
        ),
    ] = None,
    over_training: Annotated[
        bool, typer.Option("--over-training", help="The scores by step, of a run trained with --watch.")
    ] = False,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            **options.one_of(*SORTABLE),
            help=f"The highest first: {', '.join(COLUMNS)}; with --ablate, {LOSS_CHANGE}. Default: by layer and head.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            parser=options.path,
            help="A .json or .csv file, or a .png with a map for each column. Default: a table in the terminal.",
        ),
    ] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Keep the last tokens of a prompt that is too long.")
    ] = False,
    device: options.Device = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            metavar="NAME",
            **options.one_of("auto", "float32", "bfloat16"),
            help="For --ablate: auto, float32 or bfloat16. Default: auto. Scores are in float32.",
        ),
    ] = None,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Report what each head attends to, and how much the loss depends on it.

    A row for each head: the entropy of its attention, how far it looks, and how much of it goes to the first token, to
    the token before, to itself, to an earlier equal token, and to what came after one (induction).
    """
    given = locals()
    from gpt_cli.cli.work.heads import report_heads as work

    return work(**given)
