"""The commands of `gpt config` as Python functions. Needs no torch."""

from __future__ import annotations

from typing import Any

from gpt_cli.api import command
from gpt_cli.common.host import Host
from gpt_cli.config import Config, commands
from gpt_cli.config.commands import CheckRequest, SchemaRequest, SettingsRequest, ShowRequest
from gpt_cli.config.settings_reference import setting_schemas

__all__ = ["check", "schema", "settings", "show"]


def __dir__() -> tuple[str, ...]:
    return tuple(__all__)


@command(CheckRequest)
def check(request: CheckRequest, inputs: Any, host: Host) -> commands.CheckedConfig:
    return commands.check(request, host)


@command(ShowRequest)
def show(request: ShowRequest, inputs: Config, host: Host) -> commands.Shown:
    return commands.Shown(inputs)


@command(SettingsRequest)
def settings(request: SettingsRequest, inputs: Any, host: Host) -> commands.AllSettings:
    return commands.AllSettings(setting_schemas())


@command(SchemaRequest)
def schema(request: SchemaRequest, inputs: Any, host: Host) -> commands.Schema:
    return commands.Schema(Config.model_json_schema())
