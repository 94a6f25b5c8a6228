"""Make typer commands from request classes, whose fields become flags; each command prints its result."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from gpt_cli.api import Command
from gpt_cli.cli import completion
from gpt_cli.cli.command_table import TABLE
from gpt_cli.cli.console import Console
from gpt_cli.cli.help import Debug
from gpt_cli.common.results import Result
from gpt_cli.common.spelling import as_flags
from gpt_cli.config.request import Flag, flag_of, flags_of, read_request

# the flags of every command that are no fields of a request
_JSON = typer.Option("--json", help="Print the result as one JSON object, the last line of stdout.")
_QUIET = typer.Option("--quiet", help="Print no progress and no notices.")
_METAVARS: dict[Any, str] = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
_keyword = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)


def callback(name: str, function: Command[..., Any]) -> Callable[..., int | None]:
    """Return a callback for typer that runs command `name` (`function` in Python) and returns an exit code or None."""
    fields, row = flags_of(function.request), TABLE[name]

    def call(*, context: typer.Context, quiet: bool, debug: bool, json: bool = False, **options: Any) -> int | None:
        root = context.find_root().obj
        if context.invoked_subcommand is not None:  # of a group that is a command by itself
            return None
        root.update(request=function.request)  # errors name its fields
        values = {name: value for name, value in options.items() if value is not None and value != []}
        console, request = Console(quiet), read_request(function.request, values)
        request.require_shown(json=json)
        if row.drive:
            return import_module(f"gpt_cli.cli.{row.drive}").drive(request, console, json=json, words=root["words"])
        result: Result = function.answer(request, console.host())
        console.show(result, json=json)
        if failure := result.failure():
            raise failure
        return None

    parameters = [_keyword("context", annotation=typer.Context)]
    parameters += [_parameter(name, field, flag) for name, field, flag in fields]
    switches = {"json": Annotated[bool, _JSON]} if function.request.has_json else {}
    switches |= {"quiet": Annotated[bool, _QUIET], "debug": Debug}
    parameters += [_keyword(name, default=False, annotation=kind) for name, kind in switches.items()]
    vars(call).update(request=function.request, __signature__=inspect.Signature(parameters))
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__doc__ = as_flags(inspect.getdoc(function.request) or row.sentence)  # PYTHONOPTIMIZE=2 leaves no docstrings
    return call


def _parameter(name: str, field: Any, flag: Flag) -> inspect.Parameter:
    """Return a typer parameter for a request's field: a text, a list of texts or a switch, which pydantic converts."""
    kind, many = _kind(field.annotation)
    words = get_args(kind) if get_origin(kind) is Literal else ()
    complete = completion.complete_words(*words) if words else getattr(completion, flag.offers, None)
    details: dict[str, Any] = {"help": as_flags(field.description), "show_default": False}
    if kind is bool:
        typed: Any = bool | None
        names = [f"{flag_of(name, flag)}/--no-{name}" if field.default else flag_of(name, flag)]
    else:
        typed = list[str] | None if many else str | None
        names = [flag_of(name, flag)]
        details |= {"metavar": flag.metavar or ("NAME" if words else _METAVARS[kind]), "autocompletion": complete}
    declared = typer.Argument(**details) if flag.position else typer.Option(*names, **details)
    default = ... if field.is_required() else None
    return _keyword(name, default=default, annotation=Annotated[typed, declared])


def _kind(annotation: Any) -> tuple[Any, bool]:
    """Return a field's type without `Annotated`, None and Sequence, and whether the field contains several values."""
    many = False
    while (origin := get_origin(annotation)) not in (None, Literal):
        many |= origin is Sequence
        annotation = next(each for each in get_args(annotation) if each is not type(None))
    return annotation, many
