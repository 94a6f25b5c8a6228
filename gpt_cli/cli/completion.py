"""`gpt completion`: its argument."""

from __future__ import annotations

from typing import Annotated

import typer

from gpt_cli.cli import completing, options


def completion(
    shell: Annotated[
        str,
        typer.Argument(
            metavar="SHELL",
            **options.one_of(*completing.SHELLS),
            help="bash, zsh or fish.",
        ),
    ],
) -> None:
    """Print what lets a shell complete the words of gpt.

    bash: gpt completion bash >> ~/.bashrc

    zsh: gpt completion zsh >> ~/.zshrc, below the line with compinit

    fish: gpt completion fish > ~/.config/fish/completions/gpt.fish
    """
    given = locals()
    from gpt_cli.cli.work.completion import completion as work

    return work(**given)
