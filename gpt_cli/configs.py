"""The commands of `gpt config` as functions of Python. Needs no torch."""

from __future__ import annotations

from typing import Any

from gpt_cli.api import function
from gpt_cli.callbacks import Host
from gpt_cli.config import Config, looking
from gpt_cli.config.describing import known_keys
from gpt_cli.config.looking import CheckRequest, SchemaRequest, SettingsRequest, ShowRequest

__all__ = ["check", "schema", "settings", "show"]


def __dir__() -> tuple[str, ...]:
    return tuple(__all__)


@function(CheckRequest)
def check(request: CheckRequest, found: Any, host: Host) -> looking.Checked:
    return looking.check(request, host)


@function(ShowRequest)
def show(request: ShowRequest, found: Config, host: Host) -> looking.Shown:
    return looking.Shown(found)


@function(SettingsRequest)
def settings(request: SettingsRequest, found: Any, host: Host) -> looking.AllSettings:
    return looking.AllSettings(known_keys())


@function(SchemaRequest)
def schema(request: SchemaRequest, found: Any, host: Host) -> looking.Schema:
    return looking.Schema(Config.model_json_schema())
