"""What `gpt config` does."""

from __future__ import annotations

import json as json_module

from gpt_cli.cli.terminal import Console
from gpt_cli.config import Config
from gpt_cli.config.describing import settings_table
from gpt_cli.config.reading import find_config, read_config, shipped_config, write_config
from gpt_cli.errors import UsageError, visible


def check(*, file: str, settings: list[str] | None, json: bool, quiet: bool) -> None:
    """Say that a config is valid, or raise the UsageError that names every mistake."""
    console = Console(quiet)
    try:
        config = read_config(file, settings or ())
    except UsageError as error:
        if json:
            found = [{"where": e.where, "sentence": e.sentence, "hint": e.hint} for e in (error, *error.others)]
            console.json({"file": file, "valid": False, "errors": found})
        raise
    for unused in config.unused(shipped_config(file)):
        console.notice(unused)
    if json:
        console.json({"file": str(find_config(file)), "valid": True, "errors": []})
    else:
        console.result(f"{visible(find_config(file))}: valid")


def show(*, file: str, settings: list[str] | None, json: bool, quiet: bool) -> None:
    """Print a config with all its settings."""
    console = Console(quiet)
    config = read_config(file, settings or ())
    if json:
        console.json(config.model_dump(mode="json"))
    else:
        console.result(write_config(config).rstrip())


def list_settings(*, quiet: bool) -> None:
    """Print the table of all settings."""
    Console(quiet).result(settings_table())


def schema(*, quiet: bool) -> None:
    """Print the JSON schema of configs."""
    Console(quiet).result(json_module.dumps(Config.model_json_schema(), indent=2, ensure_ascii=False))
