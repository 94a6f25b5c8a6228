"""`gpt config`"""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

from gpt_cli.cli import options
from gpt_cli.cli.terminal import Console

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Check, show and describe configs.")
File = Annotated[str, typer.Argument(metavar="FILE", help="A YAML file or the name of a shipped config.")]


@app.command(epilog="Example: gpt config check my.yaml")
def check(
    file: File,
    settings: options.Settings = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Say whether a config is valid, with every mistake at once."""
    from gpt_cli.config.reading import find_config, read_config

    config = read_config(file, settings or ())
    console = Console(quiet)
    for told in config.unused():
        console.notice(told)
    if json:
        console.json({"file": str(find_config(file)), "valid": True})
    else:
        console.result(f"{find_config(file)}: valid")


@app.command(epilog="Example: gpt config show tiny --set model.d_model=192")
def show(
    file: File,
    settings: options.Settings = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Print a config with every key written out, defaults included."""
    from gpt_cli.config.reading import read_config, write_config

    config = read_config(file, settings or ())
    if json:
        Console(quiet).json(config.model_dump(mode="json"))
    else:
        Console(quiet).result(write_config(config).rstrip())


@app.command(epilog="Example: gpt config schema > schema.json")
def schema(quiet: options.Quiet = False, debug: options.Debug = False) -> None:
    """Print the JSON schema of configs, for editors: every key with type, range and meaning."""
    from gpt_cli.config import Config

    Console(quiet).result(json_module.dumps(Config.model_json_schema(), indent=2, ensure_ascii=False))
