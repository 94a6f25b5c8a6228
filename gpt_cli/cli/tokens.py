"""`gpt tokens`: its arguments and flags."""

from __future__ import annotations

from typing import Annotated

import typer

from gpt_cli.cli import completing, options


def tokens(
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text; or use --prompt, --prompt-file or a pipe.")
    ] = None,
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    run: options.WhichRun = None,
    checkpoint: options.WhichCheckpoint = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer",
            metavar="NAME",
            autocompletion=completing.words("byte", "gpt2", "cl100k_base", "o200k_base"),
            help="byte, or a published vocabulary such as gpt2 or cl100k_base, instead of that of a run.",
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show how a text is cut into tokens: their ids and their pieces of the text.

    A space is shown as ␣, the end of a line as ↵, and a piece of a character by its bytes.
    """
    given = locals()
    from gpt_cli.cli.work.tokens import show_tokens as work

    return work(**given)
