"""What is wrong with a config, as sentences: each names the line or the flag, and the nearest right key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import ValidationError

from gpt_cli.config.describing import allowed_values, is_none_of, known_keys
from gpt_cli.config.fields import Section
from gpt_cli.config.schema import Config
from gpt_cli.config.yaml_subset import Place
from gpt_cli.errors import GptError, UsageError, counted, shown, visible
from gpt_cli.limits import CONFIG_PROBLEMS

_ALL_SETTINGS = "`gpt config settings` lists every setting"
# what other programs call a setting, too unlike our name to be found by its letters
_ELSEWHERE = {
    "lr": "train.learning_rate",
    "n_layer": "model.num_blocks",
    "n_head": "model.num_heads",
    "n_embd": "model.d_model",
    "block_size": "model.context_length",
    "max_iters": "train.max_steps",
}


def wrong_values(
    error: ValidationError, content: Any, where: str, sources: Mapping[Place, str]
) -> tuple[list[GptError], set[Place]]:
    """An error for each key that pydantic refuses, and these keys.

    Of several for one key (each member of a union) one is enough. Beyond CONFIG_PROBLEMS keys, one says how many more.
    """
    found: dict[Place, Any] = {}
    for details in error.errors():
        place = tuple(str(part) for part in details["loc"])[:2]
        if place not in found or details["type"] == "string_unicode":
            found[place] = details
    wrong = [  # to find the key that was meant takes milliseconds
        _wrong_value(place, details, content, sources.get(place) or sources.get(place[:1]) or where)
        for place, details in islice(found.items(), CONFIG_PROBLEMS)
    ]
    if len(found) > CONFIG_PROBLEMS:
        wrong.append(UsageError(where, f"{counted(len(found) - CONFIG_PROBLEMS, 'more key')} cannot be read"))
    return wrong, set(found)


def misfits(content: Any, wrong: set[Place], where: str, sources: Mapping[Place, str]) -> Iterator[GptError]:
    """An error for values that do not fit together, except about keys that are wrong by themselves."""
    for name, field in Config.model_fields.items():
        values = content.get(name, {}) if isinstance(content, dict) else {}
        kind = field.annotation
        assert isinstance(kind, type), "a config consists of sections"
        assert issubclass(kind, Section), "a config consists of sections"
        if not isinstance(values, dict):
            continue
        valid = {key: value for key, value in values.items() if (name, str(key)) not in wrong}
        for misfit in kind.model_validate(valid).misfits():
            if not any((name, key) in wrong for key in misfit.keys):
                set_by = [(sources[name, key], key) for key in misfit.keys if (name, key) in sources]
                # where a flag set one of the values, the flag made the others wrong
                set_by.sort(key=lambda found: not found[0].startswith("--"))
                source, key = [*set_by, (sources.get((name,)) or where, misfit.keys[0])][0]
                yield UsageError(f"{source}: {name}.{key}", misfit.sentence, hint=misfit.hint)


def line_of(problem: GptError) -> int:
    """The line of the file that a problem names; problems without one sort last."""
    found = re.search(r":(\d+)", problem.where)
    return int(found[1]) if found else 2**31


def no_setting(place: Place, source: str) -> GptError:
    """The error for a key that does not exist."""
    name = ".".join(place)
    if place[-1] in Config.model_fields:
        sentence = f"{shown(place[-1])} is a section; a setting is one of its keys, such as {_first_key(place[-1])}"
        return UsageError(source, sentence, hint=_ALL_SETTINGS)
    nearest = _nearest_key(place)
    hint = f"did you mean {nearest}?" if nearest else _ALL_SETTINGS
    if len(place) == 2:
        return UsageError(source, f"there is no setting {shown(name)}", hint=hint)
    return UsageError(source, f"{shown(name)} is not a setting; its name is written section.key", hint=hint)


def _wrong_value(place: Place, details: Any, content: Any, source: str) -> GptError:
    key = ".".join(place)
    if details["type"] == "extra_forbidden" and len(place) == 2 and place[0] in Config.model_fields:
        return no_setting(place, source)
    if details["type"] == "extra_forbidden":
        sentence = f"there is no section {shown(key)}; the sections are {', '.join(Config.model_fields)}"
        nearest = _nearest_key(place)
        return UsageError(source, sentence, hint=f"did you mean {nearest}?" if nearest else None)
    if len(place) == 1:
        return UsageError(source, f"{key} is a section, so its settings belong below it")
    is_flag = source.startswith("--") and source != "--set"
    where = source if is_flag else f"{source}: {key}"
    as_written = content[place[0]][place[1]]
    if advice := str(details.get("ctx", {}).get("error", "")):
        return UsageError(where, f"{_shown(as_written)} {advice}")
    if details["type"] == "string_unicode":
        hint = "rename the file, or name its directory" if place[0] == "data" else None
        return UsageError(where, f"{_shown(details['input'])} is not UTF-8, as the text of a config is", hint=hint)
    written = "an empty value" if as_written in (None, "") else _shown(as_written)
    # a flag cannot be given null
    allowed = [word for word in allowed_values(key, known_keys()[key]) if not (is_flag and word == "null")]
    return UsageError(where, f"{written} {is_none_of(allowed)}")


def _shown(value: Any) -> str:
    """A value in a sentence; a number without quotes, as it was written."""
    text = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)
    is_number = isinstance(value, str) and re.fullmatch(r"[+-]?[\d._]+(e[+-]?\d+)?", value, re.IGNORECASE)
    return visible(text) if is_number or not isinstance(value, str) else shown(text)


def _nearest_key(place: Place) -> str | None:
    """The known key nearest to a mistyped one: by its whole name, else by its last part in any section."""
    known = list(known_keys())
    key = ".".join(place)
    last = {name.split(".")[1]: name for name in known} | _ELSEWHERE
    if place[-1] in last:
        return last[place[-1]]
    siblings = [name for name in known if len(place) == 2 and name.startswith(place[0])]
    if close := difflib.get_close_matches(key, siblings or list(Config.model_fields), n=1):
        return close[0]
    close = difflib.get_close_matches(place[-1], last, n=1)
    return last[close[0]] if close else None


def _first_key(section: str) -> str:
    return next(key for key in known_keys() if key.startswith(f"{section}."))
