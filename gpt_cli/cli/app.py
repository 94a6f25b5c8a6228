"""`gpt`: its commands, and the one place where errors become lines and exit codes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from copy import copy
from typing import Annotated, Any

import typer
from typer.main import get_command

from gpt_cli.cli import completion
from gpt_cli.cli.command_table import GROUPS, MEMORY_HINTS, REQUESTS, function_of, place_of
from gpt_cli.cli.console import abandon_stdout, prepare_streams
from gpt_cli.cli.help import HelpContext, ListsByDefault
from gpt_cli.cli.usage_errors import (
    ClickUsageError,
    NoArgsIsHelpError,
    name_flags_as_typed,
    require_known_language,
    usage_error,
)
from gpt_cli.cli.wrapping import width_of, wrapped
from gpt_cli.common.limits import ADDRESS_SPACE
from gpt_cli.common.machine.memory import require_address_space
from gpt_cli.common.version import __version__
from gpt_cli.errors import (
    EXIT_CODE_STDOUT_CLOSED,
    EnvironmentFailure,
    GptError,
    UsageError,
    is_lack_of_device_memory,
    is_lack_of_files,
    is_lack_of_memory,
    missing_operation,
    reason,
    shown,
)

app = typer.Typer(
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
            autocompletion=lambda incomplete: completion.words(*getattr(get_command(app), "commands", {}), *REQUESTS)(
                incomplete
            ),
            help="A command, such as sample or data list.",
        ),
    ] = None,
) -> int:
    """Show the flags of a command, as its --help does."""
    asked = words or []
    if 1 < len(named(asked).split()) <= len(asked):  # gpt itself is the first word of the name
        raise UsageError("gpt help", f"there is no command {shown(' '.join(asked))}", hint="gpt --help")
    return main([*asked, "--help"])


app.add_typer(
    typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Check, show and describe configs."), name="config"
)
app.add_typer(
    typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, help="List and fetch corpora; count, prepare and verify texts."
    ),
    name="data",
)
app.add_typer(
    typer.Typer(
        cls=ListsByDefault,
        invoke_without_command=True,
        rich_markup_mode=None,
        subcommand_metavar="| rm NAME...",
        help="List runs: state, steps, validation loss, size, age, and what differs from a shipped config.",
    ),
    name="runs",
)
app.command("completion", epilog="Example: gpt completion bash >> ~/.bashrc")(completion.completion)
app.command("help", epilog="Example: gpt help sample")(show_help)


def main(words: Sequence[str]) -> int:
    """Run the command that the words name; returns its exit code."""
    prepare_streams()
    state: dict[str, Any] = {"debug": False, "words": list(words)}
    try:
        return _run(words, state)
    except Exception as error:
        if state["debug"]:
            traceback.print_exc()
        failure = _as_gpt_error(error, words)
        name_flags_as_typed(failure, words)
        print(wrapped("\n".join(failure.lines()), width_of(sys.stderr)), file=sys.stderr)
        return failure.exit_code


def _run(words: Sequence[str], state: dict[str, Any]) -> int:
    try:
        code = _invoke(words, state)
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()  # whoever reads our output has closed it
        return EXIT_CODE_STDOUT_CLOSED
    return code


def _invoke(words: Sequence[str], state: dict[str, Any]) -> int:
    """The exit code of the command that the words name."""
    try:
        require_address_space(ADDRESS_SPACE, "gpt")
        require_known_language()
        if completion.asked():
            return completion.answer(build())
        command = build(words)
        with command.make_context("gpt", list(words), obj=state) as context:
            code = command.invoke(context)
        return code if isinstance(code, int) else 0
    except typer.Exit as done:
        return done.exit_code
    except NoArgsIsHelpError as error:
        if words:
            print(error.message)  # naming no command of a group asks for its help
            return 0
        from gpt_cli.cli.welcome import welcome

        print(welcome())
        return 0


def build(words: Sequence[str] | None = None) -> Any:
    """`gpt` as click knows it: with all commands, or with the one that the words name alone, as making all takes long.

    Words that name none get all names, with no flags but those of --help.
    """
    first = words[0].replace("_", "-") if words else ""
    one = copy(app)
    one.registered_commands = [info for info in app.registered_commands if info.name == first]
    one.registered_groups = [_with_requests(info) for info in app.registered_groups if info.name == first]
    if first in REQUESTS:
        _add(one, first, REQUESTS[first][1])
    elif not (one.registered_commands or one.registered_groups):
        one.registered_commands, one.registered_groups = list(app.registered_commands), list(app.registered_groups)
        if words is None:
            one.registered_groups = [*map(_with_requests, app.registered_groups)]
        for name, (sentence, example) in REQUESTS.items():
            if words is None:
                _add(one, name, example)
            else:
                one.command(name, help=sentence)(lambda: None)
    one.registered_commands.sort(key=lambda info: place_of(info.name or ""))
    command = get_command(one)
    prepare(command)
    return command


def _with_requests(info: Any) -> Any:
    """A group with those of its commands that are made from requests."""
    found = copy(info)
    found.typer_instance = copy(info.typer_instance)
    found.typer_instance.registered_commands = list(info.typer_instance.registered_commands)
    for name, example in GROUPS.get(info.name, {}).items():
        _add(found.typer_instance, f"{info.name} {name}".rstrip(), example)
    return found


def _add(some: typer.Typer, name: str, example: str) -> None:
    """Make a command of the request of a function; of a group's own, what the group does by itself."""
    from gpt_cli.cli.commands import callback

    epilog = f"Example: {example}"
    make = some.callback(epilog=epilog) if name in GROUPS else some.command(name.split()[-1], epilog=epilog)
    make(callback(name, function_of(name)))


def prepare(command: Any) -> None:
    """Give each command --debug and translated help, and the list of commands each first sentence uncut."""
    command.context_class = HelpContext
    for below in getattr(command, "commands", {}).values():
        below.short_help = below.short_help or (below.help or "").partition(".")[0] + "."
        prepare(below)
    if not hasattr(command, "commands") or command.invoke_without_command:
        command.params += get_command(_debug_alone()).params


def _set_debug(context: typer.Context, value: bool) -> bool:
    context.find_root().obj["debug"] |= value
    return value


_DEBUG_HELP = "Print a traceback when something goes wrong."
_Debug = Annotated[bool, typer.Option("--debug", callback=_set_debug, expose_value=False, help=_DEBUG_HELP)]


def _debug_alone() -> typer.Typer:
    """A command whose only flag is --debug; typer makes flags only from a signature."""
    alone = typer.Typer(add_completion=False)

    @alone.command()
    def _(debug: _Debug = False) -> None: ...

    return alone


def named(words: Sequence[str]) -> str:
    """The command that the words name: gpt data list."""
    command, path = build(words), "gpt"
    for word in words:
        below = getattr(command, "commands", {}).get(word.replace("_", "-"))
        if below is None:
            break
        command, path = below, f"{path} {below.name}"
    return path


def _as_gpt_error(error: Exception, words: Sequence[str]) -> GptError:
    """Any exception as the error to print."""
    if isinstance(error, GptError):
        return error
    if isinstance(error, ClickUsageError):
        return usage_error(error, named(words), words)
    if is_lack_of_memory(error):
        name, hint = named(words), MEMORY_HINTS.get(named(words))
        if is_lack_of_device_memory(error):
            return EnvironmentFailure("device", f"it has too little memory for {name}", hint=f"{hint}; or --device cpu")
        return EnvironmentFailure("memory", f"{name} ran out of memory", hint=hint)
    if operation := missing_operation(error):
        hint = "--device cpu" + (", or PYTORCH_ENABLE_MPS_FALLBACK=1 in front of gpt" if "MPS" in str(error) else "")
        return EnvironmentFailure("device", f"torch lacks {operation} on it, which {named(words)} needs", hint=hint)
    if is_lack_of_files(error):
        sentence = f"{named(words)} needs more of them than the system lets a process have"
        return EnvironmentFailure("open files", sentence, hint="ulimit -n 1024")
    if isinstance(error, OSError):
        return EnvironmentFailure(shown(error.filename) if error.filename else "output", reason(error))
    return GptError(
        "internal", f"this is a bug of gpt, {type(error).__name__}: {error}", hint="add --debug for the traceback"
    )
