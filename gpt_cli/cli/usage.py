"""A wrong command line as an error of ours, with the nearest right one as its hint."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence

# typer contains click since 0.26 and exports two of its exceptions; a test fails where a typer moves the others
from typer._click.exceptions import BadOptionUsage, BadParameter, MissingParameter, NoArgsIsHelpError, NoSuchOption
from typer._click.exceptions import UsageError as ClickUsageError

from gpt_cli.errors import GptError, UsageError, shown
from gpt_cli.language import LANGUAGES, VARIABLE, code_of

__all__ = ["ClickUsageError", "NoArgsIsHelpError", "name_flags_as_typed", "require_known_language", "usage_error"]


def usage_error(error: ClickUsageError, command: str, words: Sequence[str]) -> UsageError:
    """What typer found wrong with the words of a command line, which name the command `gpt sample` or so."""
    see = f"{command} --help lists the flags"
    if isinstance(error, NoSuchOption):
        near = error.possibilities
        hint = f"did you mean {near[0]}?" if near else see
        return UsageError(command, f"there is no flag {shown(_typed(error.option_name, words))}", hint=hint)
    if isinstance(error, BadOptionUsage):
        takes = "this flag needs a value" if "requires" in error.message else "this flag takes no value"
        return UsageError(error.option_name, takes, hint=see)
    if isinstance(error, MissingParameter):
        return UsageError(command, f"{_name(error.param)} is missing", hint=f"{command} --help shows an example")
    if isinstance(error, BadParameter) and error.param is not None:
        return UsageError(_name(error.param), _sentence(error.message))
    if (wrong := _unknown_command(error, command, words)) is not None:
        near = difflib.get_close_matches(wrong, getattr(error.ctx and error.ctx.command, "commands", {}), n=1)
        hint = f"did you mean {near[0]}?" if near else f"{command} --help lists the commands"
        return UsageError(command, f"there is no command {shown(wrong)}", hint=hint)
    if extra := re.fullmatch(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", error.message, re.DOTALL):
        hint = f"put quotes around a text with spaces; {see}"
        return UsageError(command, f"{shown(extra[1])} belongs to no flag", hint=hint)
    return UsageError(command, _sentence(error.message), hint=see)


def require_known_language() -> None:
    """Raises UsageError where GPT_LANGUAGE names a language that `gpt` does not speak."""
    asked = os.environ.get(VARIABLE, "")
    if asked and code_of(asked) not in LANGUAGES:
        raise UsageError(VARIABLE, f"{shown(asked)} is not allowed; use {' | '.join(LANGUAGES)}")


def name_flags_as_typed(error: GptError, words: Sequence[str]) -> None:
    """Let an error and those it carries name a flag with - or _ as the user typed it."""
    for problem in (error, *error.others):
        problem.where = _typed(problem.where, words)


def _typed(flag: str, words: Sequence[str]) -> str:
    """`--top_k` for `--top-k` where the user typed that."""
    typed = (word.partition("=")[0] for word in words if word.startswith("-"))
    return next((word for word in typed if word.replace("_", "-") == flag), flag)


def _unknown_command(error: ClickUsageError, command: str, words: Sequence[str]) -> str | None:
    """The word after `gpt data` or so that should name a command, where the error is about one that does not exist."""
    depth = len(command.split()) - 1  # gpt itself is no word of the arguments
    return words[depth] if error.message.startswith("No such command") and depth < len(words) else None


def _name(parameter: object) -> str:
    """A flag as `--flag`, an argument as in the help."""
    flags = [flag for flag in getattr(parameter, "opts", []) if flag.startswith("-")]
    argument = getattr(parameter, "metavar", None) or getattr(parameter, "name", "")
    return flags[0] if flags else str(argument).strip("[].")


def _sentence(message: str) -> str:
    return message[:1].lower() + message[1:].rstrip(".")
