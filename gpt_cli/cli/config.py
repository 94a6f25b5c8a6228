"""`gpt config`: its commands and their flags."""

from __future__ import annotations

from typing import Annotated

import typer

from gpt_cli.cli import completing, options

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Check, show and describe configs.")
File = Annotated[
    str,
    typer.Argument(
        metavar="FILE", autocompletion=completing.configs, help="A YAML file or the name of a shipped config."
    ),
]


@app.command(epilog="Example: gpt config check my.yaml")
def check(
    file: File, settings: options.SetFlags = None, json: options.Json = False, quiet: options.Quiet = False
) -> None:
    """Check a config and report every mistake in it."""
    given = locals()
    from gpt_cli.cli.work.config import check as work

    return work(**given)


@app.command(epilog="Example: gpt config show tiny --set model.d_model=192")
def show(
    file: File, settings: options.SetFlags = None, json: options.Json = False, quiet: options.Quiet = False
) -> None:
    """Print a config with all its settings, defaults included."""
    given = locals()
    from gpt_cli.cli.work.config import show as work

    return work(**given)


@app.command("settings", epilog="Example: gpt config settings")
def list_settings(quiet: options.Quiet = False) -> None:
    """List every setting: its default, what it allows, and what it means."""
    given = locals()
    from gpt_cli.cli.work.config import list_settings as work

    return work(**given)


@app.command(epilog="Example: gpt config schema > schema.json")
def schema(quiet: options.Quiet = False) -> None:
    """Print the JSON schema of configs, with which editors complete and check settings."""
    given = locals()
    from gpt_cli.cli.work.config import schema as work

    return work(**given)
