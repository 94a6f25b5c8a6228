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
    max_new_tokens: options.MaxNewTokens = 200,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    repetition_penalty: options.RepetitionPenalty = 1.0,
    stop: options.Stop = None,
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
