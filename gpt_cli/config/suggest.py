"""What a mistyped or foreign name means: of flags, settings, commands and functions; elsewhere.toml has the names."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpt_cli.common.mistyped import half_width, nearest
from gpt_cli.config.field_types import Section
from gpt_cli.config.schema import PUBLISHED, Config
from gpt_cli.config.settings_reference import key_names, shipped_configs

_FALSE = ("false", "no", "off", "0", "none", "null")
_IMPORT = "gpt import {}"
# the functions of gpt_cli that have another name than their commands
FUNCTIONS = {
    "attn-dump": "attention",
    "eval": "evaluate",
    "export": "export_model",
    "import": "import_model",
    "runs rm": "remove_runs",
    **{f"config {name}": f"configs.{name}" for name in ("check", "show", "settings", "schema")},
}


def accepts(kind: type[Section], name: str, value: object) -> bool:
    """Whether a field may have a value, whatever the other fields have."""
    try:
        kind.model_validate({name: value})
    except ValidationError as error:
        return all(details["loc"][0] != name for details in error.errors())
    return True


def takes(key: str, value: object) -> bool:
    """Whether a setting may have a value."""
    section, _, name = key.partition(".")
    return accepts(type(getattr(Config(), section)), name, value) and (key != "tokenizer.name" or value in PUBLISHED)


def value_meant(value: object, fits: Callable[[str], bool]) -> str | None:
    """The value, or what it is called here, if either fits."""
    ours = _ours("values", str(value).lower().replace("_", "-"))
    return next(filter(fits, [*([value, _as_duration(value)] if isinstance(value, str) else []), *ours]), None)


def _as_duration(value: str) -> str:
    """A time in the words of English or Chinese as gpt reads it: 20s of "20 sec"; other texts stay as they are."""
    for letter, unit in {
        "d": "天|days?",
        "h": "小时|hours?|hr",
        "m": "分钟?|min(?:ute)?s?",
        "s": "秒钟?|sec(?:ond)?s?",
    }.items():
        value = re.sub(rf"(?<=\d)\s*(?:{unit})\s*", letter, half_width(value))
    return value


def setting_meant(place: Sequence[str], value: object = None) -> str | None:
    """The section.key that a wrong one means, with `=value` where that changes too, or a sentence."""
    *section, last = ".".join(map(half_width, place)).split(".")
    if found := [ours for ours in _translations(".".join([*section[-1:], last])) if ours[:2] != "--"]:
        return found[0]
    siblings = [key for key in key_names() if section and key.startswith(f"{section[0]}.")]
    known = [siblings, [] if section else Config.model_fields, key_names()]
    for names in ({key.rpartition(".")[2]: key for key in keys} for keys in known):
        fits = partial(_may_be, names, value)
        if near := nearest(last, names, fits):
            return names[near]
    return None


def setting_hint(place: Sequence[str], value: object = None) -> str | None:
    """The hint for a key that does not exist."""
    meant = setting_meant(place, value)
    return meant if meant is None or _is_sentence(meant) else f"did you mean {meant}?"


def command_meant(word: str, commands: Iterable[str] = ()) -> str | None:
    """The command that a word means."""
    return next(iter(_ours("commands", word.replace("_", "-"))), None) or nearest(word, commands)


def function_meant(name: str, functions: Iterable[str]) -> str | None:
    """The function of Python that an attribute means, by the name of a command or of another program."""
    command = (command_meant(name) or f"gpt {name.replace('_', '-')}").removeprefix("gpt ").partition(" -")[0]
    found = FUNCTIONS.get(command, command.replace(" ", "."))
    return found if found.partition(".")[0] in functions else nearest(name, functions)


@dataclass(frozen=True)
class Flags:
    """What a command, or a function of Python, can be given."""

    flags: Mapping[str, tuple[str, str]]  # of each its field, and what stands for its value in help; "" for a switch
    request: Any = None  # the Request that reads the values
    run: str = "--run {}"  # how a run is given

    def hint(self, typed: str, value: str | None = None) -> str | None:
        """The hint for a flag that does not exist, and for what it was given."""
        name = typed.lstrip("-").replace("_", "-")
        lines = [f"--{name} {{}}"] if f"--{name}" in self.flags else self._lines(typed)
        if is_false := value is not None and value.lower() in _FALSE:
            lines, value = (opposite, None) if (opposite := self._lines(f"no-{name}")) else (lines, value)
        lines = lines or self._like(name, value)
        values = ((line, self._value(line, value)) for line in lines)
        line, meant = next((found for found in values if found[1] is not None), (lines[0] if lines else None, None))
        if line is None or _is_sentence(line):
            return line
        if is_false and value and "{}" not in line:
            return "leave it out"
        return f"did you mean {self._written(line, meant)}?"

    def _lines(self, typed: str) -> list[str]:
        """What a name means, of what the command has."""
        lines = [
            f"--set {ours}{'' if '=' in ours else '={}'}" if re.match(r"[a-z]+\.\w+(=|$)", ours) else ours
            for ours in _translations(typed)
        ]
        return [line for line in lines if line.split()[0] in {*self.flags, "gpt"} or _is_sentence(line)]

    def _like(self, name: str, value: str | None) -> list[str]:
        keys = key_names() if "--set" in self.flags else []
        lines = {key.rpartition(".")[2].replace("_", "-"): f"--set {key}={{}}" for key in keys}
        lines |= {flag[2:]: f"{flag} {{}}" for flag in self.flags if flag.startswith("--")}
        near = nearest(name, lines, lambda each: self._value(lines[each], value) is not None)
        return [lines[near]] if near else []

    def _value(self, line: str, value: str | None) -> str | None:
        """The value as one of our lines takes it, "" where there is none; None where the line cannot take it."""
        if value is None:
            return None if line == _IMPORT else ""
        return value_meant(value, partial(self._fits, line))

    def _fits(self, line: str, value: str) -> bool:
        is_config = value in shipped_configs() or value.endswith((".yaml", ".yml")) or os.path.isfile(value)
        if line == _IMPORT:
            return not (is_config or value.startswith("runs/") or any(map(os.path.exists, (value, f"runs/{value}"))))
        field, _ = self.flags.get(line.split()[0], ("", ""))
        if "={}" in line:
            return takes(line.removesuffix("={}").split()[-1], value)
        if "{}" not in line or self.request is None or field not in self.request.model_fields:
            return True
        return accepts(self.request, field, value) and (line != "--config {}" or is_config)

    def _written(self, line: str, value: str | None) -> str:
        flag = line.split()[0]
        _, metavar = self.flags.get(flag, ("", "VALUE"))
        if not metavar:
            return flag
        instead = shlex.quote(value) if value else "VALUE" if flag == "--set" else metavar
        return (self.run if line == "--run {}" else line).replace("{}", instead).replace(" runs/runs/", " runs/")


@lru_cache(maxsize=1)
def _elsewhere() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("elsewhere.toml").read_text("utf-8"))


def _ours(kind: str, name: str) -> list[str]:
    rows = _elsewhere()[kind].items()
    return [ours for row, theirs in rows if name in theirs.split() for ours in row.split(" | ")]


def _translations(typed: str) -> list[str]:
    """What a name means that is not mistyped: ours by the name elsewhere, or a setting without its section."""
    plain = half_width(typed).lower().lstrip("-").replace("_", "-")
    last = {key.rpartition(".")[2].replace("_", "-"): key for key in key_names()}
    names = [f"-{plain}" if re.fullmatch(r"-\w", typed) else plain, plain, plain.rpartition(".")[2]]
    found = ([*_ours("names", name), *filter(None, [last.get(name)])] for name in names)
    return next(filter(None, found), [])


def _is_sentence(ours: str) -> bool:
    return " " in ours and not ours.startswith(("--", "gpt "))


def _may_be(names: Mapping[str, str], value: object, name: str) -> bool:
    return value is None or "." not in names[name] or takes(names[name], value)
