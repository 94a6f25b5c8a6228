"""`gpt completion`."""

from __future__ import annotations

from typing import Annotated

import typer

from gpt_cli.cli import completing
from gpt_cli.cli.terminal import Console
from gpt_cli.errors import shown


def _shell(text: str) -> str:
    if text not in completing.SHELLS:
        raise typer.BadParameter(f"{shown(text)} is not allowed; use {' | '.join(completing.SHELLS)}")
    return text


def completion(
    shell: Annotated[
        str,
        typer.Argument(
            metavar="SHELL",
            parser=_shell,
            autocompletion=completing.words(*completing.SHELLS),
            help="bash, zsh or fish.",
        ),
    ],
) -> None:
    """Print what lets a shell complete the words of gpt.

    bash: gpt completion bash >> ~/.bashrc

    zsh: gpt completion zsh >> ~/.zshrc, below the line with compinit

    fish: gpt completion fish > ~/.config/fish/completions/gpt.fish
    """
    Console().result(completing.script(shell))
