"""Read a Config strictly from a file and `--set`, with all problems in one error; compare configs.

Configs of earlier versions can always be loaded, because `without_retired` translates their keys.
"""

import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import ValidationError

from gpt_cli.common.file_signatures import holds_run, is_config
from gpt_cli.common.mistyped import full_width, half_width, nearest
from gpt_cli.common.untrusted_files import require_reachable
from gpt_cli.config import config_errors
from gpt_cli.config.field_types import LEARNING, as_yaml
from gpt_cli.config.schema import Config, keys_with
from gpt_cli.config.settings_reference import shipped_configs
from gpt_cli.config.strict_yaml import NULLS, Document, KeyPath, parse, read_config_text
from gpt_cli.errors import GptError, UsageError, collecting, shown, together, visible

# section.key -> (field of a request, value)
Flags = Mapping[str, tuple[str, Any]]
# section.key -> (the line or flag that sets it, value)
Changes = Mapping[str, tuple[str, Any]]


def find_config(name: str, also: Sequence[str] = ()) -> Path:
    """Return the config file that `name` means, a path or a shipped config; error hints also offer the names in `also`.

    Raises UsageError if there is no such file, EnvironmentFailure in a directory that the user may not enter.
    """
    name = os.path.expanduser(name)
    path = Path(name)
    if os.path.isfile(name):  # false, not an error, for a name that is too long
        return path
    shipped = shipped_configs()
    if name in shipped:
        return shipped[name]
    require_reachable(path)
    names = f"shipped configs: {', '.join([*also, *shipped])}"
    if os.path.isdir(name):
        yaml_file = next((shlex.quote(visible(file)) for file in sorted(path.glob("*.yaml"))), names)
        raise UsageError(shown(name), "this is a directory, but a config is a .yaml file", hint=yaml_file)
    close = near_config(name, also)
    hint = f"did you mean {close}? {names}" if close else names
    raise UsageError(shown(name), "there is no such config file", hint=hint)


def shipped_config(name: str, also: Sequence[str] = ()) -> Config | None:
    """Return the shipped config that `name` means, None for another file; `also` and errors are as in `find_config`."""
    path = find_config(name, also)
    return read_config(str(path)) if path in shipped_configs().values() else None


def near_config(name: str, also: Sequence[str] = ()) -> str | None:
    """Return the shipped config, or the name in `also`, that is spelled most like `name`; None if none is similar."""
    return nearest(Path(name).stem, [*shipped_configs(), *also])


def read_config(name: str, settings: Sequence[str] = (), flags: Flags | None = None, *, whole: bool = False) -> Config:
    """Return the config `name` (a path or a shipped name), overridden by `settings` (texts of --set), then by `flags`.

    `whole` means that gpt wrote the file, with every key: if a key is missing, an earlier version of gpt wrote it.
    Raises one UsageError for all unknown keys and wrong values.
    """
    path = find_config(name)
    try:
        return build_config(read_document(path, whole=whole), str(path), settings, flags)
    except GptError as error:
        if path.suffix.lower() not in (".yaml", ".yml") and not error.where.startswith("‹"):
            text = shlex.quote(visible(path))
            error.hint = f"a config is a .yaml file; to train on a text: gpt train --data {text}"
        raise


def read_document(path: Path, *, whole: bool = False) -> Document:
    """Parse a config file of any version, with today's keys; `whole` is as in `read_config`. Raises UsageError."""
    document = parse(read_config_text(path), str(path))
    whole = whole or (path.name == "config.yaml" and holds_run(path.parent))
    return Document(without_retired(document.content, whole=whole), document.lines)


def read_run_config(path: Path, settings: Sequence[str] = (), flags: Flags | None = None) -> Config:
    """Read the config.yaml of a run as `read_config` does; raise UsageError also for a missing or cut-off file."""
    hint = f"gpt train --config FILE --out {shlex.quote(visible(path.parent))} --resume writes it again"
    if not path.exists():
        raise UsageError(shown(path), "this file of the run is missing", hint=hint)
    try:
        config = read_config(str(path), settings, flags, whole=True)
    except GptError as error:
        error.hint = error.hint or (hint if error.where.startswith(str(path)) and is_config(path) else None)
        raise
    if not is_config(path, whole=True):
        raise UsageError(shown(path), "this file of the run is cut off, or gpt did not write it", hint=hint)
    return config


def without_retired(content: Any, *, whole: bool = False) -> Any:
    """Translate the retired keys of a config to today's keys; `whole` means that gpt wrote this config, with every key.

    stop_at, max_expansion and parallel are dropped; the tokenizer kind kept becomes imported. If stop_at is null and
    max_time is set, max_steps becomes null. If a `whole` config of an early version lacks stop_at, stop_at is null.
    """
    if not isinstance(content, Mapping):
        return content
    sections = {name: dict(section) if isinstance(section, Mapping) else section for name, section in content.items()}
    names = ("data", "tokenizer", "train")
    data, tokenizer, train = (sections[name] if isinstance(sections.get(name), dict) else {} for name in names)
    if whole and "stop_at" not in train and ("max_expansion" in data or "freeze" not in train):
        train["stop_at"] = None
    if train.get("stop_at", "first") is None and train.get("max_time") is not None:
        train["max_steps"] = None
    if tokenizer.get("kind") == "kept":
        tokenizer["kind"] = "imported"
    data.pop("max_expansion", None)
    train.pop("stop_at", None)
    train.pop("parallel", None)
    return sections


def build_config(
    document: Document, where: str, settings: Sequence[str] = (), flags: Flags | None = None, *, to_choose: bool = False
) -> Config:
    """Build a Config from a parsed document, overridden by `--set` texts, then by flags; raise UsageError if invalid.

    `where` names the document in errors. With `to_choose`, set keys of model and train need not fit unset keys, which
    `auto_config` chooses later.
    """
    changes, wrong = dict[str, tuple[str, Any]](), list[GptError]()
    for setting in settings:
        key, equals, value = setting.partition("=")
        with collecting(wrong):
            # a full-width mark in the value may be meant
            if wrong_mark := full_width(setting if not equals else key):
                right = half_width(setting)
                meant = _meant(right) or f"‹settings={right}›"
                raise UsageError("‹settings›", wrong_mark, hint=meant, about=visible(setting))
            if not equals or not key or key != key.rstrip():
                sentence = f"{shown(setting)} does not have the form section.key=value"
                raise UsageError("‹settings›", sentence, hint=_meant(setting), about=visible(setting))
            read: Any = value
            if not is_plain(value):
                with contextlib.suppress(UsageError):  # gpt reads [INST] {prompt}, which is not YAML, as text
                    read = parse(f"value: {value}", "‹settings›").content["value"]
            if key.count(".") != 1:
                raise config_errors.no_setting(tuple(key.split(".")), "‹settings›", read)
            changes[key] = "‹settings›", read
    for key, (field, value) in (flags or {}).items():
        if value is not None:
            if key in changes:
                sentence = f"‹{key}› and ‹{field}› cannot be combined; leave one of them out"
                wrong.append(UsageError(f"‹{field}›", sentence))
            changes[key] = f"‹{field}›", value
    content, sources = overridden(document, where, changes)
    try:
        config = validate(content, where, sources, to_choose=to_choose)
    except GptError as error:
        raise together([error, *error.others, *wrong]) from None
    if wrong:
        raise together(wrong)
    return config


def overridden(document: Document, where: str, changes: Changes) -> tuple[dict[str, Any], dict[KeyPath, str]]:
    """Apply `changes` to the document named `where`; return its content, and the line or flag that sets each key."""
    content: dict[str, Any] = {name: {} if keys is None else copy(keys) for name, keys in document.content.items()}
    sources: dict[KeyPath, str] = {key_path: f"{where}:{line}" for key_path, line in document.lines.items()}
    train = content.get("train")
    _, time = changes.get("train.max_time", ("", None))
    if time is not None and isinstance(train, dict) and train.get("max_time") is None:
        train.pop("max_steps", None)  # a time replaces the steps of a document that names no time
    for key, (source, value) in changes.items():
        section, _, name = key.partition(".")
        if isinstance(content.setdefault(section, {}), dict):  # else validation reports that it is not a section
            content[section][name] = value
        sources[section, name] = source
        sources.setdefault((section,), source)
    return content, sources


def validate(
    content: Any, where: str, sources: Mapping[KeyPath, str] | None = None, *, to_choose: bool = False
) -> Config:
    """Build a Config from plain data, section -> key -> value; raise one UsageError that reports all problems.

    A problem is located by the line or flag that `sources` has for its key, else by `where`.
    With `to_choose`, set keys of model and train need not fit unset keys, which `auto_config` chooses later.
    """
    if not isinstance(content, Mapping):
        raise UsageError(where, "a config consists of sections")
    sources = sources or {}
    config: Config | None = None
    problems, wrong = list[GptError](), set[KeyPath]()
    try:
        config = Config.model_validate(content)
    except ValidationError as error:
        problems, wrong = config_errors.wrong_values(error, content, where, sources)
    problems += config_errors.misfits(content, wrong, where, sources, to_choose=to_choose)
    if problems or config is None:
        raise together(sorted(problems, key=config_errors.line_of))
    return config


def without_untrusted_settings(config: Config) -> Config:
    """Copy an untrusted config: keep model, tokenizer and settings marked LEARNING; reset all others to defaults."""
    safe: dict[str, dict[str, object]] = {}
    for section, _, key in (name.partition(".") for name in keys_with(LEARNING)):
        safe.setdefault(section, {})[key] = getattr(getattr(config, section), key)
    return Config().changed(**safe).model_copy(update={"model": config.model, "tokenizer": config.tokenizer})


def write_config(config: Config) -> str:
    """Return a config as YAML text, with every key."""
    return str(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True))


def config_differences(old: Config, new: Config) -> Iterator[tuple[str, str, str]]:
    """Yield (section.key, old value, new value), in the form of a config file, for each key in which configs differ."""
    before, after = dotted_keys(old.model_dump()), dotted_keys(new.model_dump())
    for key, value in before.items():
        if value != after[key]:
            yield key, as_yaml(value), as_yaml(after[key])


def _meant(setting: str) -> str | None:
    """Return ‹settings=KEY=VALUE›, the hint for a setting typed as KEY: VALUE, KEY VALUE or KEY = VALUE; else None."""
    match = re.fullmatch(r"([\w.]+)(?:\s*=[\s=]*|\s*:\s*|\s+)(\S.*?)[\s,]*", setting)
    return match and f"‹settings={match[1]}={match[2]}›"


def is_plain(text: str) -> bool:
    """Return whether `--set` takes a value's text as it is; null and lists such as [a, b] are parsed as YAML."""
    return not text.startswith("[") and text not in NULLS


class Likeness(NamedTuple):
    """The name of a shipped config, and the settings of another config that differ from it: section.key -> value."""

    shipped: str
    settings: Mapping[str, str]


@cache
def read_shipped() -> Mapping[str, Config]:
    """Return all shipped configs: name -> config."""
    return {name: read_config(str(path)) for name, path in shipped_configs().items()}


def likeness(config: Config, name: str) -> Likeness:
    """Return how a config differs from the shipped config `name`, if it exists, or else from the most similar one.

    A value that a run chose instead of `auto` does not count as a difference.
    """
    shipped = read_shipped()
    candidates = (
        Likeness(other, {key: new for key, old, new in config_differences(settings, config) if old != "auto"})
        for other, settings in shipped.items()
        if other == name or name not in shipped
    )
    # of two equally similar configs, the one with the shorter name: tiny before multi-head
    return min(candidates, key=lambda one: (len(one.settings), len(one.shipped)))


def dotted_keys(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one flat mapping, each key after `prefix`: {"a": {"b": 1}} -> {prefix + "a.b": 1}."""
    flat = dict[str, Any]()
    for key, value in content.items():
        flat |= dotted_keys(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
