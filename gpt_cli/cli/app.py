"""Run the commands of `gpt`, and turn exceptions into lines on stderr and exit codes."""

import contextlib
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer
from typer.main import get_command

from gpt_cli.cli import completion
from gpt_cli.cli.command_table import TABLE, below, function_of
from gpt_cli.cli.console import for_stdout, prepare_streams, terminal_width, wrapped
from gpt_cli.cli.help import Below, CommandGroup, Debug, HelpContext, ListsByDefault
from gpt_cli.cli.usage_errors import (
    ClickUsageError,
    NoArgsIsHelpError,
    require_supported_language,
    spelled,
    usage_error,
)
from gpt_cli.common import __version__
from gpt_cli.common.language import say
from gpt_cli.common.limits import ADDRESS_SPACE
from gpt_cli.common.machine.failures import as_gpt_error
from gpt_cli.common.machine.memory import require_address_space
from gpt_cli.errors import EXIT_CODE_STDOUT_CLOSED, GptError, UsageError, shown, visible

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    # a flag may be typed with - or _
    context_settings={
        "token_normalize_func": lambda word: word.replace("_", "-"),
        "help_option_names": ["--help", "-h"],
    },
    help="Train a small GPT on your own text, sample from it, and see its attention.",
    epilog="Start with: gpt train --data my.txt, gpt sample --prompt 'The value of', "
    "gpt attn-dump --prompt 'The value of' --out attention.html",
)


def _print_version(value: bool) -> None:
    if value:
        print(f"gpt {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


def show_help(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            autocompletion=completion.complete_words(*below("")),
            help="A command, such as sample or data list.",
        ),
    ] = None,
    debug: Debug = False,
) -> int:
    """Show the flags of a command, as its --help does."""
    command_words = words or []
    if 1 < len(named(command_words).split()) <= len(command_words):  # gpt itself is the first word of the name
        raise UsageError("gpt help", f"there is no command {shown(' '.join(command_words))}", hint="gpt --help")
    return main([*command_words, "--help"])


def main(words: Sequence[str]) -> int:
    """Run the command line `words`; print an error on stderr if it fails, and return the exit code."""
    prepare_streams()
    state: dict[str, Any] = {"debug": False, "words": list(words), "request": None}
    try:
        code = _invoke(words, state)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of stdout has closed it, and the flush at exit must not fail either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CODE_STDOUT_CLOSED
    except Exception as error:
        if state["debug"]:
            traceback.print_exc()
        name = named(words)
        if isinstance(error, ClickUsageError):
            failure = usage_error(error, name, words)
        else:
            row = TABLE.get(name.removeprefix("gpt "))
            failure = as_gpt_error(error, name, row and row.memory)
        command = getattr(getattr(error, "ctx", None), "command", None)
        request = getattr(getattr(command, "callback", None), "request", state["request"])
        spell = partial(spelled, command=name, request=request, words=words)
        print(wrapped("\n".join(failure.lines(spell)), terminal_width(sys.stderr)), file=sys.stderr)
        return failure.exit_code


def _invoke(words: Sequence[str], state: dict[str, Any]) -> int:
    """Run the command line `words` without catching its errors; return its exit code. `state` is click's `ctx.obj`."""
    try:
        require_address_space(ADDRESS_SPACE, "gpt")
        require_supported_language()
        if os.environ.get(completion.VARIABLE):
            return completion.answer(build())
        with build().make_context("gpt", list(words), obj=state) as context:
            code = context.command.invoke(context)
        return code if isinstance(code, int) else 0
    except typer.Exit as done:
        return done.exit_code
    except NoArgsIsHelpError as error:
        print(error.message if words else for_stdout(_welcome()))  # a group without a command prints its help
        return 0


def _welcome() -> str:
    """Return the text that `gpt` alone prints: commands to try, with comments; those for the newest run come first."""
    from gpt_cli.checkpoints.select import find_header, newest_run
    from gpt_cli.checkpoints.training_text import readable_prompt

    run, prompt = None, "The value of"
    with contextlib.suppress(GptError):
        run = newest_run()
        prompt = readable_prompt(find_header(run))
    of_run = "" if run is None else f" --run {shlex.quote(str(run))}"
    words = f"--prompt {shlex.quote(visible(prompt))}"
    train = [
        ("train a model on a text of your own, in at most five minutes", "gpt train --data my.txt"),
        ("train a small model on the documentation of Python, in a minute", "gpt train --config tiny"),
    ]
    use = [
        ("let the model continue a text", f"gpt sample{of_run} {words}"),
        ("see which tokens it looks at", f"gpt attn-dump{of_run} {words} --out attention.html"),
    ]
    begin = "What to type first:" if run is None else f"Your newest run is {visible(run)}. What to type next:"
    commands = "\n".join(
        f"  # {say(does)}\n  {say(command)}" for does, command in (train + use if run is None else use + train)
    )
    purpose = "Train a small GPT on your own text, sample from it, and see its attention."
    rest = "gpt --help lists all commands; gpt help train lists the flags of one."
    return f"{say(purpose)}\n\n{say(begin)}\n{commands}\n\n{say(rest)}"


def build() -> Any:
    """Build the click command `gpt`, whose subcommands are built only when they are named."""
    return _completed(app, "")


def _made(name: str) -> Any:
    """Build the click command or group `name` from TABLE; a group that has an example also runs without subcommand."""
    row, some = TABLE[name], typer.Typer(add_completion=False, rich_markup_mode=None)
    if not row.example:
        some.callback(cls=CommandGroup, no_args_is_help=True, help=row.sentence)(lambda: None)
        return _completed(some, name)
    call: Any = {"completion": completion.completion, "help": show_help}.get(name)
    if call is None:  # a command with a request
        from gpt_cli.cli.commands import callback

        call = callback(name, function_of(name))
    how: Any = {"epilog": f"Example: {row.example}"}
    if below(name):
        how |= {"cls": ListsByDefault, "invoke_without_command": True, "subcommand_metavar": "| rm NAME..."}
        some.callback(help=row.sentence, **how)(call)
    else:
        some.command(**how)(call)
    return _completed(some, name)


def _completed(some: typer.Typer, name: str) -> Any:
    """Convert a typer app to the click command or group `name`, with translated help; a group gets its subcommands."""
    command: Any = get_command(some)
    command.context_class, command.name = HelpContext, name.rpartition(" ")[2]
    command.short_help = (command.help or "").partition(".")[0] + "."
    if below(name):
        command.commands = Below(name, _made)
    return command


def named(words: Sequence[str]) -> str:
    """Return the full name of the command at the beginning of a command line, such as gpt data list."""
    path = ""
    for word in words:
        if (last := word.replace("_", "-")) not in below(path):
            break
        path = f"{path} {last}".lstrip()
    return f"gpt {path}".rstrip()
