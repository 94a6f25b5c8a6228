"""Complete commands, flags and the names of runs, configs and texts after TAB in a shell, for `gpt completion`."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

# typer contains click since 0.26; a test in real shells fails where a typer moves these
from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script
from typer.completion import shell_complete

from gpt_cli.cli.console import Console
from gpt_cli.cli.help import Debug
from gpt_cli.common.language import say
from gpt_cli.errors import shown

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_GPT_COMPLETE"  # a shell sets it to request completions

_PLAIN = re.compile(r"[\w./+,-]+")  # zsh would run the command in a name such as \$(...)

Completer = Callable[[str], list[str]]


def answer(command: Any) -> int:
    """Print the completions that a shell requests, in its format; return an exit code. `command` is click's `gpt`."""
    completion_init()
    os.environ["COLUMNS"] = "10000"  # typer wraps descriptions, but shells read one line for each word
    _translate(command)
    return shell_complete(command, {"obj": {"debug": False}}, "gpt", VARIABLE, os.environ[VARIABLE])


def _translate(command: Any, above: Any = None) -> None:
    """Translate the help of a command, its flags and its subcommands in place; `above` is the context of its group."""
    command.short_help = command.short_help and say(command.short_help)
    context = command.context_class(command, parent=above, **command.context_settings)
    for parameter in command.get_params(context):  # --help is among them
        if getattr(parameter, "help", None):
            parameter.help = say(parameter.help)
    for below in getattr(command, "commands", {}).values():
        _translate(below, context)


def complete_words(*allowed: str) -> Completer:
    """Return a completer: a function that returns the words of `allowed` that begin with its argument."""
    return lambda incomplete: [word for word in allowed if word.startswith(incomplete)]


def configs(incomplete: str) -> list[str]:
    """Return the names of shipped configs that begin with `incomplete`; the shell itself completes file names."""
    from gpt_cli.config.load import shipped_configs

    return complete_words(*shipped_configs())(incomplete)


def configs_and_auto(incomplete: str) -> list[str]:
    """Return the values of `gpt train --config` that begin with `incomplete`: AUTO and the names of shipped configs."""
    from gpt_cli.training.request import AUTO

    return complete_words(AUTO)(incomplete) + configs(incomplete)


devices = complete_words("auto", "cpu", "cuda", "mps", "xpu")
checkpoints = complete_words("best", "last")
commands_of_runs = complete_words("rm")  # the shell itself completes directories
tokenizers = complete_words("byte", "gpt2", "cl100k_base", "o200k_base")


def runs(incomplete: str) -> list[str]:
    """Return the paths of runs under runs/ that begin with `incomplete`, except paths that need quotes in a shell."""
    from gpt_cli.checkpoints.run_list import find_runs

    directories: list[str] = []
    with suppress(OSError):  # a shell can show no error
        directories += map(str, find_runs(Path("runs")))
    return complete_words(*filter(_PLAIN.fullmatch, directories))(incomplete)


def run_names(incomplete: str) -> list[str]:
    """Return the names of runs, which are paths relative to runs/, that begin with `incomplete`."""
    return complete_words(*(str(Path(path).relative_to("runs")) for path in runs("")))(incomplete)


def configs_and_runs(incomplete: str) -> list[str]:
    """Return the names of shipped configs and the paths of runs that begin with `incomplete`."""
    return configs(incomplete) + runs(incomplete)


def texts(incomplete: str) -> list[str]:
    """Return the names of corpora in the catalogue that begin with `incomplete`."""
    from gpt_cli.text.datasets import ENTRIES

    return complete_words(*ENTRIES)(incomplete)


def _shell(text: str) -> str:
    if text not in SHELLS:
        raise typer.BadParameter(f"{shown(text)} is not allowed; use {' | '.join(SHELLS)}")
    return text


def completion(
    shell: Annotated[
        str,
        typer.Argument(
            metavar="SHELL", parser=_shell, autocompletion=complete_words(*SHELLS), help="bash, zsh or fish."
        ),
    ],
    debug: Debug = False,
) -> None:
    """Print a script for shell completion of gpt.

    bash: gpt completion bash >> ~/.bashrc

    zsh: gpt completion zsh >> ~/.zshrc, below the line with compinit

    fish: gpt completion fish > ~/.config/fish/completions/gpt.fish
    """
    Console().result(get_completion_script(prog_name="gpt", complete_var=VARIABLE, shell=shell))
