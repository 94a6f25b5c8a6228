"""The commands of `gpt config`: their requests, their results, and their Python functions. Needs no torch."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from gpt_cli.api import command
from gpt_cli.common.host import Host
from gpt_cli.common.language import language, say
from gpt_cli.common.results import WIDTH, Result
from gpt_cli.common.spelling import as_flags
from gpt_cli.common.tables import Rows
from gpt_cli.config import Config
from gpt_cli.config.field_types import as_yaml
from gpt_cli.config.load import dotted_keys, find_config, read_config, shipped_config, write_config
from gpt_cli.config.request import EMPTY, Flag, NamedPath, Request, Settings
from gpt_cli.config.settings_reference import allowed_values, setting_schemas
from gpt_cli.errors import GptError, UsageError, visible

__all__ = ["check", "schema", "settings", "show"]


def __dir__() -> tuple[str, ...]:
    return tuple(__all__)


class CheckRequest(Request):
    """Check a config and report every mistake in it."""

    file: Annotated[NamedPath, Flag("FILE", offers="configs", position=True)] = Field(
        kw_only=False, description="A YAML file or the name of a shipped config."
    )
    settings: Settings = EMPTY


@dataclass(frozen=True)
class CheckedConfig(Result):
    """The result of `gpt config check`: the mistakes of a config; `failure` returns the error that names them."""

    file: str
    mistakes: Sequence[GptError] = ()

    @property
    def valid(self) -> bool:
        """Whether the config has no mistakes."""
        return not self.mistakes

    def as_dict(self) -> dict[str, Any]:
        errors = [
            {"where": as_flags(e.where), "sentence": as_flags(e.sentence), "hint": e.hint and as_flags(e.hint)}
            for e in self.mistakes
        ]
        return {"file": self.file, "valid": self.valid, "errors": errors}

    def as_text(self, width: int = WIDTH) -> str:
        return f"{visible(self.file)}: valid" if self.valid else ""

    def failure(self) -> GptError | None:
        return self.mistakes[0] if self.mistakes else None


@command(CheckRequest)
def check(request: CheckRequest, inputs: Any, host: Host) -> CheckedConfig:
    try:
        config = read_config(request.file, request.settings)
    except UsageError as error:
        return CheckedConfig(request.file, (error, *error.others))
    host.notices(config.unused(shipped_config(request.file)))
    return CheckedConfig(str(find_config(request.file)))


class ShowRequest(CheckRequest):
    """Show a config with all its settings, defaults included."""

    def find(self, host: Host) -> Config:
        """Return the config `self.file`, changed by `self.settings`; raise one UsageError that lists all mistakes."""
        return read_config(self.file, self.settings)


@dataclass(frozen=True)
class Shown(Result):
    """The result of `gpt config show`: a config with all its settings."""

    config: Config

    def as_dict(self) -> dict[str, Any]:
        return self.config.model_dump(mode="json")

    def parts(self) -> list[Rows]:
        rows = [(key, as_yaml(value)) for key, value in dotted_keys(self.as_dict()).items()]
        return [[("setting", "value"), *rows]]

    def as_text(self, width: int = WIDTH) -> str:
        return write_config(self.config).rstrip()


@command(ShowRequest)
def show(request: ShowRequest, inputs: Config, host: Host) -> Shown:
    return Shown(inputs)


class SettingsRequest(Request):
    """List every setting: its default, what it allows, and what it means."""

    has_json: ClassVar[bool] = False


@dataclass(frozen=True)
class AllSettings(Result):
    """The result of `gpt config settings`: section.key -> JSON schema (type, range, default, description)."""

    keys: dict[str, dict[str, Any]]

    def parts(self) -> list[Rows]:
        heading = say("| setting | default | allowed | meaning |").strip("| ").split(" | ")
        return [[tuple(heading), *(self._row(key, details) for key, details in self.keys.items())]]

    def _row(self, key: str, details: dict[str, Any]) -> tuple[str, ...]:
        """Return a setting's key, default, allowed values and meaning, in the user's language."""
        # other single words are values that a user types, which stay English
        allowed = [say(kind) if " " in kind or kind == "text" else kind for kind in allowed_values(key, details)]
        return key, json.dumps(details["default"]).strip('"'), _either(allowed), say(details["description"])

    def as_text(self, width: int = WIDTH) -> str:
        """Return all settings as a Markdown table, which docs/settings.md and its Chinese translation contain."""
        ((heading, *rows),) = self.parts()
        lines = [heading, ["---"] * len(heading), *((f"`{key}`", *cells) for key, *cells in rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _either(alternatives: list[str]) -> str:
    *others, last = alternatives
    if language() == "en" or not others:
        return " or ".join(alternatives)
    listed = "、".join(others)
    # a space separates 或 from ASCII letters
    return f"{listed}{' ' * listed[-1].isascii()}或{' ' * last[0].isascii()}{last}"


@command(SettingsRequest)
def settings(request: SettingsRequest, inputs: Any, host: Host) -> AllSettings:
    return AllSettings(setting_schemas())


class SchemaRequest(Request):
    """Show the JSON schema of configs, with which editors complete and check settings."""

    has_json: ClassVar[bool] = False


@dataclass(frozen=True)
class Schema(Result):
    """The result of `gpt config schema`: the JSON schema of configs."""

    schema: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return self.schema

    def as_text(self, width: int = WIDTH) -> str:
        return json.dumps(self.schema, indent=2, ensure_ascii=False)


@command(SchemaRequest)
def schema(request: SchemaRequest, inputs: Any, host: Host) -> Schema:
    return Schema(Config.model_json_schema())
