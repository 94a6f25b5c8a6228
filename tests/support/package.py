"""The source of the package, parsed once for all tests that read it."""

import ast
from functools import cache
from pathlib import Path

import gpt_cli
from gpt_cli.cli.command_table import TABLE

PACKAGE = Path(gpt_cli.__file__).parent
COMMANDS = [name for name in TABLE if name not in ("completion", "help", "config", "data")]  # which are functions too


@cache
def trees() -> dict[str, ast.Module]:
    """Every file of the package by its path in it, such as `model/gpt.py`, in their order."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text("utf-8")) for path in paths}


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """Every node of each of these files."""
    return {path: [*ast.walk(tree)] for path, tree in trees().items()}
