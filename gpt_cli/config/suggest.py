"""Suggest a flag, setting, command or function for a typo, or for another program's name of it, such as --lr."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from gpt_cli.common.mistyped import half_width, nearest
from gpt_cli.config.field_types import Section
from gpt_cli.config.schema import PUBLISHED, Config
from gpt_cli.config.settings_reference import key_names, shipped_configs

_FALSE = ("false", "no", "off", "0", "none", "null")
# the functions of gpt_cli that have other names than their commands
FUNCTIONS = {
    "attn-dump": "attention",
    "eval": "evaluate",
    "export": "export_model",
    "import": "import_model",
    "runs rm": "remove_runs",
    **{f"config {name}": f"configs.{name}" for name in ("check", "show", "settings", "schema")},
}


def accepts(kind: type[Section], name: str, value: object) -> bool:
    """Return whether the field `name` of the section class `kind` accepts a value, whatever the other fields are."""
    try:
        kind.model_validate({name: value})
    except ValidationError as error:
        return all(details["loc"][0] != name for details in error.errors())
    return True


def takes(key: str, value: object) -> bool:
    """Return whether the setting `key`, written section.key, accepts a value."""
    section, _, name = key.partition(".")
    return accepts(type(getattr(Config(), section)), name, value) and (key != "tokenizer.name" or value in PUBLISHED)


def value_meant(value: object, fits: Callable[[str], bool]) -> str | None:
    """Return the first that `fits` accepts: `value`, its ASCII form, gpt's word (bfloat16 for bf16); else None."""
    ours = _ours("values", str(value).lower().replace("_", "-"))
    typed = [value, half_width(value)] if isinstance(value, str) else []
    return next(filter(fits, [*typed, *ours]), None)


class Meaning(NamedTuple):
    """What another program's name means in gpt: `fields` (pairs of name and value), or `text` (command or sentence).

    A {} in a value or text stands for the value that the user typed.
    """

    fields: tuple[tuple[str, str], ...] = ()
    text: str = ""  # a command or a sentence

    @classmethod
    def of(cls, text: str) -> Meaning:
        """Parse a meaning as elsewhere.toml writes it: max_steps, device=cuda, gpt import {} or a sentence."""
        words = [re.fullmatch(r"([a-z_]+(?:\.\w+)?)(?:=(\S+))?", word) for word in text.split(" ")]
        pairs = tuple((word[1], word[2] or "{}") for word in words if word)
        return cls(pairs) if len(pairs) == len(words) and (len(pairs) == 1 or "." in pairs[0][0]) else cls((), text)

    @property
    def is_setting(self) -> bool:
        """Whether the meaning is a setting of a config."""
        return bool(self.fields) and "." in self.fields[0][0]

    @property
    def is_import(self) -> bool:
        """Whether the meaning is the command `gpt import`."""
        return self.text == "gpt import {}"


def setting_meant(key_path: Sequence[str], value: object = None) -> str | None:
    """Return what a wrong key probably means: section.key, section.key=value, a command or a sentence; else None."""
    *section, last = ".".join(map(half_width, key_path)).split(".")
    for meaning in _meanings(".".join([*section[-1:], last])):
        if meaning.text:
            return meaning.text
        if meaning.is_setting:
            return " ".join(key if value == "{}" else f"{key}={value}" for key, value in meaning.fields)
    if not section and (ours := _ours("sections", last)):
        return ours[0]
    siblings = [key for key in key_names() if section and key.startswith(f"{section[0]}.")]
    groups = [siblings, [] if section else Config.model_fields, key_names()]
    for names in ({key.rpartition(".")[2]: key for key in keys} for keys in groups):
        if near := nearest(last, names, partial(_may_be, names, value)):
            return names[near]
    return None


def setting_hint(key_path: Sequence[str], value: object = None) -> str | None:
    """Return the hint for a key that does not exist; None if no setting is similar."""
    meant = setting_meant(key_path, value)
    return meant if meant is None or _is_sentence(meant) else f"did you mean {meant}?"


def command_meant(word: str, commands: Iterable[str] = ()) -> str | None:
    """Return the command that a wrong word means, from elsewhere.toml or as a typo of one of `commands`; else None."""
    return next(iter(_ours("commands", word.replace("_", "-"))), None) or nearest(word, commands)


def function_meant(name: str, functions: Iterable[str]) -> str | None:
    """Return the function that a wrong name means, or None: "attn_dump" (a command) and "atention" mean `attention`."""
    command = (command_meant(name) or f"gpt {name.replace('_', '-')}").removeprefix("gpt ").partition(" -")[0]
    function = FUNCTIONS.get(command, command.replace(" ", "."))
    return function if function.partition(".")[0] in functions else nearest(name, functions)


@dataclass(frozen=True)
class Arguments:
    """The arguments that a command or a Python function accepts, to suggest one for a wrong name."""

    fields: Mapping[str, str]  # name -> placeholder in help, "" for a switch
    request: Any = None  # the Request that reads the values
    run: str = "run"  # the field that names a run

    def hint(self, typed: str, value: str | None = None) -> str | None:
        """Return the hint for an unknown argument `typed` and its value; None if no argument is similar."""
        name = half_width(typed).lower().lstrip("-").replace("-", "_")
        name = self.run if name == "run" else name
        meanings = [Meaning(((name, "{}"),))] if name in self.fields else self._meanings(typed)
        if is_false := value is not None and value.lower() in _FALSE:
            meanings, value = (opposite, None) if (opposite := self._meanings(f"no-{name}")) else (meanings, value)
        meanings = meanings or self._like(name, value)
        taken = ((meaning, self._value(meaning, value)) for meaning in meanings)
        meaning, meant = next((one for one in taken if one[1] is not None), (meanings[0] if meanings else None, None))
        if meaning is None or _is_sentence(meaning.text):
            return meaning and meaning.text
        if is_false and value and not self._takes_value(meaning):
            return "leave it out"
        return f"did you mean {self._suggestion(meaning, meant)}?"

    def _meanings(self, typed: str) -> list[Meaning]:
        """Return what a wrong argument name may mean: commands, sentences, or arguments that are in `fields`."""
        return [meaning for meaning in _meanings(typed) if meaning.text or self._field(meaning) in self.fields]

    def _field(self, meaning: Meaning) -> str:
        name = meaning.fields[0][0]
        return "settings" if meaning.is_setting else self.run if name == "run" else name

    def _like(self, name: str, value: str | None) -> list[Meaning]:
        keys = key_names() if "settings" in self.fields else []
        names = {key.rpartition(".")[2]: key for key in keys} | {field: field for field in self.fields}
        meanings = {each: Meaning(((ours, "{}"),)) for each, ours in names.items()}
        near = nearest(name, meanings, lambda each: self._value(meanings[each], value) is not None)
        return [meanings[near]] if near else []

    def _takes_value(self, meaning: Meaning) -> bool:
        return meaning.is_import or (bool(self.fields[self._field(meaning)]) and "{}" in meaning.fields[-1][1])

    def _value(self, meaning: Meaning, value: str | None) -> str | None:
        """Return a form of `value` that `meaning` accepts, or None; for no value, return "" (`gpt import`: None)."""
        if value is None:
            return None if meaning.is_import else ""
        return value_meant(value, partial(self._fits, meaning))

    def _fits(self, meaning: Meaning, value: str) -> bool:
        is_config = value in shipped_configs() or value.endswith((".yaml", ".yml")) or os.path.isfile(value)
        if meaning.is_import:
            return not (is_config or value.startswith("runs/") or any(map(os.path.exists, (value, f"runs/{value}"))))
        if meaning.text or not self._takes_value(meaning):
            return True
        if meaning.is_setting:
            return takes(meaning.fields[-1][0], value)
        field = self._field(meaning)
        if self.request is None or field not in self.request.model_fields:
            return True
        return accepts(self.request, field, value) and (field != "config" or is_config)

    def _suggestion(self, meaning: Meaning, value: str | None) -> str:
        if meaning.text:
            return meaning.text.replace("{}", shlex.quote(value or "PATH"))
        if not (placeholder := "VALUE" if meaning.is_setting else self.fields[self._field(meaning)]):
            return f"‹{self._field(meaning)}=True›"
        pairs = [
            (self._field(meaning) if "." not in name else name, each.replace("{}", value or placeholder))
            for name, each in meaning.fields
        ]
        return " ".join(f"‹{name}={each.replace('runs/runs/', 'runs/')}›" for name, each in pairs)


@lru_cache(maxsize=1)
def _elsewhere() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("elsewhere.toml").read_text("utf-8"))


def _ours(kind: str, name: str) -> list[str]:
    return [ours for row, theirs in _elsewhere()[kind].items() if name in theirs.split() for ours in row.split(" | ")]


def _meanings(typed: str) -> list[Meaning]:
    """Return what `typed` means in gpt, if it is another program's name or a setting's name without its section."""
    plain = half_width(typed).lower().lstrip("-").replace("_", "-")
    last = {key.rpartition(".")[2].replace("_", "-"): key for key in key_names()}
    names = [f"-{plain}" if re.fullmatch(r"-\w", typed) else plain, plain, plain.rpartition(".")[2]]
    rows = ([*_ours("names", name), *filter(None, [last.get(name)])] for name in names)
    return [Meaning.of(ours) for ours in next(filter(None, rows), [])]


def _is_sentence(ours: str) -> bool:
    return " " in ours and not ours.startswith("gpt ")


def _may_be(names: Mapping[str, str], value: object, name: str) -> bool:
    return value is None or "." not in names[name] or takes(names[name], value)
