"""From a file and `--set` to a Config: strict, with every problem told at once."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from gpt_cli.config.fields import Section
from gpt_cli.config.schema import Config
from gpt_cli.config.yaml_subset import Document, Place, parse, read_text
from gpt_cli.errors import GptError, UsageError, shown, together


def shipped_configs() -> dict[str, Path]:
    """The configs that come with the program: name -> file."""
    package = Path(__file__).parent.parent
    folder = package / "configs" if (package / "configs").is_dir() else package.parent / "configs"
    return dict(sorted((path.stem, path) for path in folder.glob("*.yaml")))


def find_config(name: str) -> Path:
    """The file that `--config NAME` means: a path, or the name of a shipped config."""
    path = Path(name)
    if os.path.isfile(name):  # false, not an error, for a name that is too long
        return path
    shipped = shipped_configs()
    if name in shipped:
        return shipped[name]
    close = difflib.get_close_matches(path.stem, shipped, n=1)
    hint = f"did you mean --config {close[0]}? " if close else ""
    raise UsageError(shown(name), "no such config file", hint=f"{hint}shipped configs: {', '.join(shipped)}")


def read_config(name: str, settings: Sequence[str] = (), flags: Mapping[str, tuple[str, Any]] | None = None) -> Config:
    """The config of a file with `--set` texts, then flags (dotted key -> flag as typed, value), written over it.

    Raises UsageError that tells every unknown key, wrong type and value out of range.
    """
    path = find_config(name)
    return build_config(parse(read_text(path), str(path)), str(path), settings, flags)


def build_config(
    document: Document, where: str, settings: Sequence[str] = (), flags: Mapping[str, tuple[str, Any]] | None = None
) -> Config:
    """The config of a parsed document with settings and flags written over it."""
    content = {section: {} if value is None else value for section, value in document.content.items()}
    sources: dict[Place, str] = {place: f"{where}:{line}" for place, line in document.lines.items()}
    problems: list[GptError] = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        try:
            if not equals or not key:
                raise UsageError("--set", f"{shown(setting)} has no value", "write section.key=value")
            _write(content, tuple(key.split(".")), _read_value(value), "--set", sources)
        except GptError as error:
            problems.append(error)
    for key, (flag, value) in (flags or {}).items():
        if value is not None:
            _write(content, tuple(key.split(".")), value, flag, sources)
    try:
        config = validate(content, where, sources)
    except GptError as error:
        raise together([error, *error.others, *problems]) from None
    if problems:
        raise together(problems)
    return config


def validate(content: Any, where: str, sources: Mapping[Place, str] | None = None) -> Config:
    """A Config from plain data; raises UsageError with a line for each problem."""
    sources = sources or {}
    problems: list[GptError] = []
    failed: set[Place] = set()
    config: Config | None = None
    try:
        config = Config.model_validate(content)
    except ValidationError as error:
        found = _most_telling(error)
        failed = set(found)
        problems = [_problem(details, where, sources) for details in found.values()]
    problems += _misfits(content, failed, where, sources)
    if problems or config is None:
        raise together(sorted(problems, key=_line))
    return config


def _misfits(content: Any, failed: set[Place], where: str, sources: Mapping[Place, str]) -> Iterator[GptError]:
    """Values that do not fit together, in sections where some others may be wrong by themselves."""
    for name, field in Config.model_fields.items():
        values = content.get(name, {}) if isinstance(content, dict) else {}
        kind = field.annotation
        assert isinstance(kind, type), "a config is made of sections"
        assert issubclass(kind, Section), "a config is made of sections"
        if not isinstance(values, dict):
            continue
        valid = {key: value for key, value in values.items() if (name, str(key)) not in failed}
        for misfit in kind.model_validate(valid).misfits():
            if not any((name, key) in failed for key in misfit.keys):
                told = [sources[name, key] for key in misfit.keys if (name, key) in sources]
                # a value from the command line, where there is one, is what made the others wrong
                told.sort(key=lambda source: not source.startswith("--"))
                source = [*told, sources.get((name,)) or where][0]
                yield UsageError(f"{source}: {name}.{misfit.keys[0]}", misfit.wrong, misfit.allowed)


def write_config(config: Config) -> str:
    """The whole config as YAML, every key written out."""
    return str(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True))


def known_keys() -> dict[str, dict[str, Any]]:
    """Every key as `section.key`, with its JSON schema: type, range, default, description."""
    schema = Config.model_json_schema()
    return {
        f"{section}.{key}": details
        for section, reference in schema["properties"].items()
        for key, details in schema["$defs"][reference["$ref"].split("/")[-1]]["properties"].items()
    }


def differences(old: Config, new: Config) -> Iterator[tuple[str, str, str]]:
    """The keys in which two configs differ: (section.key, old, new), the values as a config file writes them."""
    before, after = old.model_dump(), new.model_dump()
    for section, keys in before.items():
        for key, value in keys.items():
            if value != after[section][key]:
                yield f"{section}.{key}", _written(value), _written(after[section][key])


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def allowed_values(details: Mapping[str, Any]) -> str:
    """What a key may hold, in words, from its JSON schema."""
    kinds = details.get("anyOf", [details])
    words = [_allowed_kind(kind) for kind in kinds]
    return "use " + " or ".join(word for word in words if word)


def _allowed_kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(schema["enum"])
    kind = schema.get("type")
    if kind in ("integer", "number"):
        noun = "a whole number" if kind == "integer" else "a number"
        limits = [
            f"{words} {schema[key]:,}" for key, words in _LIMITS.items() if abs(schema.get(key, _ENDLESS)) < _ENDLESS
        ]
        return re.sub(r"from (\S+) and at most", r"from \1 to", f"{noun} {' and '.join(limits)}").strip()
    return _NOUNS.get(str(kind), "")


_LIMITS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
_ENDLESS = 2**31 - 1
_NOUNS = {"boolean": "true or false", "string": "text", "array": "a list of texts", "null": "null"}


def _most_telling(error: ValidationError) -> dict[Place, Any]:
    """The validation errors by key; of several for one key (a union reports each member) the first."""
    by_key: dict[Place, Any] = {}
    for details in error.errors():
        place = tuple(str(part) for part in details["loc"])[:2]
        by_key.setdefault(place, details)
    return by_key


def _line(problem: GptError) -> int:
    """The line of the file that a problem names; problems without one come last."""
    found = re.search(r":(\d+)", str(problem))
    return int(found[1]) if found else 2**31


def _problem(details: Any, where: str, sources: Mapping[Place, str]) -> GptError:
    place: Place = tuple(str(part) for part in details["loc"])[:2]
    source = sources.get(place) or sources.get(place[:1]) or where
    key = ".".join(place)
    value = details["input"]
    if details["type"] == "extra_forbidden":
        hint = None
        if nearest := _nearest_key(place):
            hint = f"did you mean {nearest}?"
        kind = "section" if len(place) == 1 and isinstance(value, dict) else "key"
        known = (
            ", ".join(Config.model_fields) if len(place) == 1 else f"see `gpt config schema` for those of {place[0]}"
        )
        return UsageError(
            source,
            f"unknown {kind} {shown(key)}",
            f"sections are {known}" if len(place) == 1 else known,
            hint=hint,
        )
    if len(place) == 1:
        return UsageError(source, f"{key} is not a section", f"write keys below `{key}:`")
    wrong = "is empty" if value is None else _wrong(details, value)
    told = source if source.startswith("--") and source != "--set" else f"{source}: {key}"
    return UsageError(told, wrong, _ALLOWED_TEXT.get(key) or allowed_values(known_keys()[key]))


_ALLOWED_TEXT = {
    "train.device": "use auto | cpu | cuda | cuda:N",
    "train.max_time": "use seconds, 90s, 5m or 2h, or null",
}


def _wrong(details: Any, value: Any) -> str:
    told = shown(value) if isinstance(value, str) else shown(repr(value))[1:-1]
    if details["type"] == "value_error":
        return f"{told} {details['ctx']['error']}"
    if details["type"] in ("greater_than_equal", "greater_than", "less_than_equal", "less_than"):
        return f"{value} is out of range"
    return f"{told} is not allowed"


def _nearest_key(place: Place) -> str | None:
    """The known key nearest to a mistyped one: by its whole name, else by its last part in any section."""
    known = list(known_keys())
    key = ".".join(place)
    last = {name.split(".")[1]: name for name in known}
    if place[-1] in last:
        return last[place[-1]]
    siblings = [name for name in known if len(place) == 2 and name.startswith(place[0])]
    if close := difflib.get_close_matches(key, siblings or list(Config.model_fields), n=1):
        return close[0]
    close = difflib.get_close_matches(place[-1], last, n=1)
    return last[close[0]] if close else None


def _read_value(text: str) -> Any:
    """The value of `--set`: YAML flow text such as [a, b] or null, else the text as it is."""
    if text.strip().startswith(("[", "~")) or text.strip() in ("", "null"):
        return parse(f"value: {text}", "--set").content["value"]
    return text


def _write(content: dict[str, Any], place: Place, value: Any, source: str, sources: dict[Place, str]) -> None:
    if len(place) != 2:
        nearest = _nearest_key(place)
        hint = f"did you mean {nearest}?" if nearest else None
        raise UsageError(source, f"unknown key {shown('.'.join(place))}", "a key is section.key", hint=hint)
    section, key = place
    if isinstance(content.setdefault(section, {}), dict):  # else validation tells that it is no section
        content[section][key] = value
    sources[place] = source
    sources.setdefault((section,), source)
