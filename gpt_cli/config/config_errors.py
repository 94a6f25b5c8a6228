"""Describe mistakes in a config by errors that name the line or the flag, and the nearest correct key."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from pydantic import ValidationError

from gpt_cli.common.limits import CONFIG_PROBLEMS
from gpt_cli.common.mistyped import full_width
from gpt_cli.config.schema import Config
from gpt_cli.config.settings_reference import allowed_values, is_none_of, key_names, setting_schemas
from gpt_cli.config.strict_yaml import KeyPath
from gpt_cli.config.suggest import setting_hint, setting_meant, takes, value_meant
from gpt_cli.errors import GptError, UsageError, counted, shown, visible

_ALL_SETTINGS = "`gpt config settings` lists every setting"


def wrong_values(
    error: ValidationError, content: Any, where: str, sources: Mapping[KeyPath, str]
) -> tuple[list[GptError], set[KeyPath]]:
    """Return an error for each key of a config's `content` that pydantic's `error` refuses, and the set of these keys.

    An error names the line or flag that `sources` has for a key, else `where`. A key with several errors (one for each
    member of a union) gets only one. If over CONFIG_PROBLEMS keys are wrong, a last error says how many more.
    """
    by_key: dict[KeyPath, Any] = {}
    for details in error.errors():
        key_path = tuple(str(part) for part in details["loc"])[:2]
        if key_path not in by_key or details["type"] == "string_unicode":
            by_key[key_path] = details
    wrong = [  # finding the intended key takes milliseconds
        _wrong_value(key_path, details, content, sources.get(key_path) or sources.get(key_path[:1]) or where)
        for key_path, details in islice(by_key.items(), CONFIG_PROBLEMS)
    ]
    if len(by_key) > CONFIG_PROBLEMS:
        wrong.append(UsageError(where, f"{counted(len(by_key) - CONFIG_PROBLEMS, 'more key')} cannot be read"))
    return wrong, set(by_key)


def misfits(
    content: Any, wrong: set[KeyPath], where: str, sources: Mapping[KeyPath, str], *, to_choose: bool = False
) -> Iterator[GptError]:
    """Yield an error for each group of values in `content` that do not fit together; skip groups with a key in `wrong`.

    An error names the line or flag that `sources` has for a key, else `where`. With `to_choose`, gpt will choose the
    unset keys of model and train, so a group with such a key yields no error.
    """
    # the key that a mistyped key means counts as wrong too
    meant = (setting_meant(key_path) for key_path in islice(wrong, CONFIG_PROBLEMS))
    wrong = wrong | {tuple(key.partition("=")[0].split(".")) for key in meant if key}
    for name, section in Config():
        if not isinstance(values := content.get(name, {}), dict):
            continue
        valid = {key: value for key, value in values.items() if (name, str(key)) not in wrong}
        for misfit in section.model_validate(valid).misfits():
            if to_choose and name in ("model", "train") and not {*misfit.keys} <= {*valid}:
                continue
            if not any((name, key) in wrong for key in misfit.keys):
                set_by = [(sources[name, key], key) for key in misfit.keys if (name, key) in sources]
                # if a flag set one of the values, the error names the flag
                set_by.sort(key=lambda entry: not entry[0].startswith("‹"))
                source, key = [*set_by, (sources.get((name,)) or where, misfit.keys[0])][0]
                yield UsageError(f"{source}: {name}.{key}", misfit.sentence, hint=misfit.hint)


def line_of(problem: GptError) -> int:
    """Return the number of the line that an error names, or 2**31, so that errors without a line sort last."""
    match = re.search(r":(\d+)(?:: [\w.]+)?$", problem.where)  # a path may have colons and digits too
    return int(match[1]) if match else 2**31


def no_setting(key_path: KeyPath, source: str, value: Any = None) -> GptError:
    """Return the error for an unknown key in `source` (a line or flag); a hint may suggest a key that takes `value`."""
    name = ".".join(key_path)
    if key_path[-1] in Config.model_fields:
        first = next(key for key in key_names() if key.startswith(f"{key_path[-1]}."))
        sentence = f"{shown(key_path[-1])} is a section; a setting is one of its keys, such as {first}"
        return UsageError(source, sentence, hint=_ALL_SETTINGS)
    sentence = f"{shown(name)} is not a setting; the name of a setting has the form section.key"
    if len(key_path) == 2:
        sentence = f"there is no setting {shown(name)}"
    return UsageError(source, sentence, hint=setting_hint(key_path, value) or _ALL_SETTINGS, about=visible(name))


def refusal(
    value: Any, details: Mapping[str, Any], allowed: list[str], fits: Callable[[str], bool], spelled: str = "{}"
) -> tuple[str, str | None]:
    """Return the sentence of an error about a refused `value`, and a hint (None if there is no hint).

    `details` is pydantic's error. The sentence is the message of gpt's own validator, or names the `allowed` values.
    If `fits` accepts what the user probably means, such as 3, the hint is "did you mean ‹k=3›?", where `spelled` is
    "‹k={}›". Otherwise, the hint names a full-width character in the value, if there is one.
    """
    sentence = str(details.get("ctx", {}).get("error", "")) or is_none_of(allowed)
    if (meant := value_meant(value, fits)) is not None:
        return sentence, f"did you mean {spelled.format(meant)}?"
    typed = value if isinstance(value, list | tuple) else [value]
    return sentence, next(filter(None, map(full_width, typed)), None)


def _wrong_value(key_path: KeyPath, details: Any, content: Any, source: str) -> GptError:
    key = ".".join(key_path)
    if details["type"] == "extra_forbidden" and len(key_path) == 2 and key_path[0] in Config.model_fields:
        return no_setting(key_path, source, details["input"])
    if details["type"] == "extra_forbidden":
        sentence = f"there is no section {shown(key)}; the sections are {', '.join(Config.model_fields)}"
        return UsageError(source, sentence, hint=setting_hint(key_path, details["input"]), about=visible(key))
    if len(key_path) == 1:
        wrong = f"{key} is a section, so its settings belong below it"
        return UsageError(source, wrong, hint=full_width(content[key]), about=key)
    is_flag = source.startswith("‹") and source != "‹settings›"
    where = source if is_flag else f"{source}: {key}"
    if details["type"] == "string_unicode":
        hint = "rename the file, or name its directory" if key_path[0] == "data" else None
        sentence = f"{_shown(details['input'])} has a byte that is not UTF-8, but a config must be UTF-8"
        return UsageError(where, sentence, hint=hint)
    value = content[key_path[0]][key_path[1]]
    # a flag cannot be null
    allowed = [word for word in allowed_values(key, setting_schemas()[key]) if not (is_flag and word == "null")]
    sentence, hint = refusal(value, details, allowed, partial(takes, key))
    typed = "an empty value" if value in (None, "") else _shown(value)
    return UsageError(where, f"{typed} {sentence}", hint=hint, about=key)


def _shown(value: Any) -> str:
    """Format a value for an error: numbers and booleans as in the file, other texts in quotes."""
    text = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)
    is_number = isinstance(value, str) and re.fullmatch(r"[+-]?[\d._]+(e[+-]?\d+)?", value, re.IGNORECASE)
    return visible(text) if is_number or not isinstance(value, str) else shown(text)
