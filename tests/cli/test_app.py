"""The list of commands: what each signature hands to the function that does its work, --version and help."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import typer

from gpt_cli.cli import app

# without a file in cli/work, since what they do is about the command line itself
OF_THE_COMMAND_LINE = {"help"}


def signatures(commands: typer.Typer, path: str = "") -> dict[str, Callable[..., Any]]:
    """The functions that typer calls, by the words that name the command."""
    found = {}
    for command in commands.registered_commands:
        assert command.callback
        found[f"{path}{command.name or command.callback.__name__}"] = command.callback
    for group in commands.registered_groups:
        assert group.typer_instance
        found |= signatures(group.typer_instance, f"{path}{group.name} ")
    return found


SIGNATURES = {name: call for name, call in signatures(app.app).items() if name not in OF_THE_COMMAND_LINE}


def work_of(signature: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function that a signature imports and calls; None for one of another shape than `given, import, return`."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(signature))).body
    assert isinstance(definition, ast.FunctionDef)
    match definition.body:
        case [ast.Expr(), given, ast.ImportFrom(module=str(module), names=[ast.alias(name, "work")]), call] if (
            ast.unparse(given) == "given = locals()" and ast.unparse(call) == "return work(**given)"
        ):
            return getattr(import_module(module), name)
    return None


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_command_is_a_signature_and_one_import_of_a_function_with_the_same_parameters(name: str) -> None:
    work = work_of(SIGNATURES[name])
    if work is None and name != "sample":
        pytest.skip("not of this shape yet")
    assert work is not None
    assert work.__module__.startswith("gpt_cli.cli.work.")
    taken = inspect.signature(work).parameters
    assert list(taken) == list(inspect.signature(SIGNATURES[name]).parameters)
    assert {parameter.kind for parameter in taken.values()} <= {inspect.Parameter.KEYWORD_ONLY}
    assert {parameter.default for parameter in taken.values()} <= {inspect.Parameter.empty}, "the signature has them"
