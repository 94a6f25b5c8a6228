"""`gpt sample`: its flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt_cli.cli import options


def sample(
    prompt: options.Prompt = None,
    prompt_file: Annotated[
        Path | None,
        typer.Option(
            "--prompt-file", metavar="FILE", parser=options.path, help="A UTF-8 text file with one prompt per line."
        ),
    ] = None,
    run: options.WhichRun = None,
    checkpoint: options.WhichCheckpoint = None,
    max_new_tokens: Annotated[
        int,
        typer.Option(metavar="N", parser=options.NEW_TOKENS, help="How many tokens to add."),
    ] = 200,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            parser=options.TEMPERATURE,
            help="Below 1 is more careful, above 1 more daring, 0 the same as --greedy. Default: 0.8.",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=options.TOP_K,
            help="Choose among the N likeliest tokens only; 0 means all.",
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            parser=options.SHARE,
            help="Choose among the likeliest tokens whose probabilities add up to X.",
        ),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            parser=options.SHARE,
            help="Choose among tokens at least X times as probable as the likeliest.",
        ),
    ] = None,
    repetition_penalty: Annotated[
        float,
        typer.Option(
            metavar="X",
            parser=options.REPETITION_PENALTY,
            help="Above 1 makes tokens of the text so far less likely.",
        ),
    ] = 1.0,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="End before this text and leave it out. Repeatable."),
    ] = None,
    num_samples: Annotated[
        int,
        typer.Option(
            metavar="N", parser=options.whole_number(1, 10_000), help="How many continuations of each prompt."
        ),
    ] = 1,
    seed: options.Seed = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the likeliest token.")] = False,
    stream: Annotated[
        bool, typer.Option("--stream/--no-stream", help="Print a single sample token by token as the model writes it.")
    ] = True,
    without: options.Without = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    quantize: options.Quantize = None,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Continue prompts.

    stdout contains the continuations alone; a line with --- separates several. An empty prompt starts a new
    document. On a terminal, without a prompt, gpt sample reads lines and continues each. End a prompt with a whole
    word, not with a space: a byte-pair model learned its words with the space in front.
    """
    given = locals()
    from gpt_cli.cli.work.sample import sample as work

    return work(**given)
