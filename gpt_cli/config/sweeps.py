"""The file of a sweep: a base config, and settings of which each combination, or some drawn at random, is trained."""

from __future__ import annotations

import difflib
import itertools
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpt_cli.config.describing import known_keys
from gpt_cli.config.problems import no_setting, wrong_values
from gpt_cli.config.reading import find_config, shipped_configs, validate
from gpt_cli.config.schema import Config
from gpt_cli.config.yaml_subset import Document, Place, parse, read_text
from gpt_cli.errors import GptError, UsageError, counted, shown, together
from gpt_cli.limits import CONFIG_PROBLEMS, SWEEP_POINTS

KEYS = ("base", "settings", "grid", "random", "num_runs", "seed")
RANGE = ("from", "to", "scale")
_DRAWS = 1000  # in vain, before a random sweep counts as exhausted

Settings = Mapping[str, Any]  # section.key -> a value as a config file has it


@dataclass(frozen=True)
class Sweep:
    """A base config with what all points share, and the points: what each sets beside."""

    path: Path
    base: Path
    settings: Settings
    points: tuple[Settings, ...]
    configs: tuple[Config, ...]  # of the points
    record: Mapping[str, Any]  # what it was made from: section.key -> value

    def changed(self, point: Settings) -> dict[str, Any]:
        """All that a point sets over the base."""
        return {**self.settings, **point}


def read_sweep(path: Path, max_time: str | None = None) -> Sweep:
    """Read a file, and check the config of every point; `max_time` is the `--max-time` of each.

    Raises UsageError for all that is wrong, with the nearest known keys.
    """
    where = str(path)
    document = parse(read_text(path), where)
    _require_keys(document, where)
    content = document.content
    base = _base(content.get("base"), path)
    wrong = [*itertools.islice(_wrong_settings(document, where, max_time), CONFIG_PROBLEMS)]
    if wrong:
        raise together([*wrong, *itertools.islice(_wrong_values(document, where), CONFIG_PROBLEMS)])
    settings = content.get("settings") or {}
    points = tuple(_grid(content["grid"], where) if "grid" in content else _draw(content, document, where))
    configs = _checked(base, settings, points, document, where, max_time)
    record = {**_flat(content), **_flat(parse(read_text(base), str(base)).content, "base.")}
    return Sweep(path, base, settings, points, configs, record | {"max_time": max_time})


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Mappings within mappings as one, its keys joined by dots."""
    flat = dict[str, Any]()
    for key, value in content.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _require_keys(document: Document, where: str) -> None:
    """Raise UsageError for keys that no sweep has, missing ones, and those that contradict each other."""
    content, wrong = document.content, []
    unknown = [key for key in content if key not in KEYS]
    for key in unknown[:CONFIG_PROBLEMS]:
        close = difflib.get_close_matches(key, KEYS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the keys are {', '.join(KEYS)}"
        wrong.append(UsageError(_line(document, where, key), f"a sweep has no key {shown(key)}", hint=hint, about=key))
    if len(unknown) > CONFIG_PROBLEMS:
        wrong.append(UsageError(where, f"{counted(len(unknown) - CONFIG_PROBLEMS, 'more key')} cannot be read"))
    if "base" not in content:
        wrong.append(UsageError(where, "base is missing; name a shipped config or a config file"))
    kinds = [key for key in ("grid", "random") if key in content]
    if len(kinds) != 1:
        sentence = "grid and random cannot be combined; leave one of them out" if kinds else "grid or random is missing"
        wrong.append(UsageError(where, sentence))
    if kinds == ["grid"]:
        wrong += [
            UsageError(_line(document, where, key), f"{key} belongs to random; a grid trains every combination")
            for key in ("num_runs", "seed")
            if key in content
        ]
    if kinds == ["random"] and "num_runs" not in content:
        wrong.append(UsageError(where, f"num_runs is missing; use a whole number from 1 to {SWEEP_POINTS:,}"))
    if wrong:
        raise together(wrong)


def _line(document: Document, where: str, *place: str) -> str:
    line = document.lines.get(place)
    return where if line is None else f"{where}:{line}"


def _base(name: Any, path: Path) -> Path:
    """The config that a sweep begins from: a path relative to the file, or a shipped name."""
    if not isinstance(name, str):
        raise UsageError(f"{path}: base", "it must be the name of a shipped config or of a config file")
    beside = path.parent / Path(name).expanduser()
    if beside.is_file():
        return beside
    shipped = shipped_configs()
    return shipped[name] if name in shipped else find_config(str(beside))


def _wrong_settings(document: Document, where: str, max_time: str | None) -> Iterator[GptError]:
    """What is wrong with the names of settings and the form of what they are given."""
    known, seen = known_keys(), dict[str, str]()
    for section in ("settings", "grid", "random"):
        if section not in document.content:
            continue
        given = document.content[section] or {}
        if not isinstance(given, dict) or (section != "settings" and not given):
            written = "value" if section == "settings" else "list"
            yield UsageError(_line(document, where, section), f"{section} must have lines `section.key: {written}`")
            continue
        for key, value in given.items():
            at = _line(document, where, section, key)
            if key not in known:
                yield no_setting(tuple(key.split(".")), at)
            elif key in seen:
                yield UsageError(at, f"{key} is already set by {seen[key]}")
            elif key in ("train.max_time", "train.max_steps") and max_time is not None:
                yield UsageError(at, f"{key} and --max-time cannot be combined; leave one of them out")
            elif section != "settings" and (sentence := _wrong_choice(value, section)):
                yield UsageError(f"{at}: {key}", sentence)
            seen.setdefault(key, section)


def _wrong_values(document: Document, where: str) -> Iterator[GptError]:
    """What is wrong with single values of settings whose form is right."""
    known = known_keys()
    for section in ("settings", "grid", "random"):
        given = document.content.get(section)
        for key, value in given.items() if isinstance(given, dict) else ():
            if key not in known or (section != "settings" and _wrong_choice(value, section)):
                continue
            part, name = key.split(".")
            for one in value if section != "settings" and isinstance(value, list) else [value]:
                content = {part: {} if isinstance(one, dict) else {name: one}}
                try:
                    Config.model_validate(content)
                except ValidationError as error:
                    yield from wrong_values(
                        error, content, where, {(part, name): _line(document, where, section, key)}
                    )[0]


def _wrong_choice(value: Any, section: str) -> str | None:
    """Why a grid cannot take, or random draw, a value from this; None where it can."""
    if isinstance(value, list):
        seen = set[str]()
        for one in value:
            if str(one) in seen:
                return f"{shown(one)} is there twice"
            seen.add(str(one))
        return None if value else "the list is empty"
    if section == "grid":
        return "a grid needs a list of values, such as [1e-3, 3e-3]"
    if not isinstance(value, dict):
        return "random needs a list of values, or {from: 1e-4, to: 1e-2, scale: log}"
    if other := [key for key in value if key not in RANGE]:
        return f"a range has from, to and scale, but no {shown(other[0])}"
    if missing := [key for key in RANGE[:2] if key not in value]:
        return f"a range needs {' and '.join(missing)}"
    if value.get("scale", "linear") not in ("linear", "log"):
        return f"scale {shown(value['scale'])} is neither linear nor log"
    return None


def _grid(lists: Mapping[str, list[Any]], where: str) -> Iterator[Settings]:
    """Every combination, the last setting changing fastest."""
    if (count := math.prod(map(len, lists.values()))) > SWEEP_POINTS:
        sentence = f"the grid has {count:,} points, and a sweep at most {SWEEP_POINTS:,}"
        raise UsageError(where, sentence, hint="random draws some of many points")
    return (dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values()))


def _draw(content: Mapping[str, Any], document: Document, where: str) -> Iterator[Settings]:
    """Different points, drawn by the seed."""
    count = _whole(content["num_runs"], 1, SWEEP_POINTS, _line(document, where, "num_runs"), "num_runs")
    seed = _whole(content.get("seed", "0"), 0, 2**63 - 1, _line(document, where, "seed"), "seed")
    places = {key: f"{_line(document, where, 'random', key)}: {key}" for key in content["random"]}
    draws = {key: _drawing(key, value, places[key]) for key, value in content["random"].items()}
    generator, found, in_vain = random.Random(seed), list[Settings](), 0
    while len(found) < count:
        point = {key: draw(generator.random()) for key, draw in draws.items()}
        if point not in found:
            found.append(point)
            in_vain = 0
        elif (in_vain := in_vain + 1) == _DRAWS:
            at = _line(document, where, "num_runs")
            raise UsageError(at, f"num_runs is {count}, but there are only {counted(len(found), 'different point')}")
    return iter(found)


def _whole(value: Any, low: int, high: int, where: str, key: str) -> int:
    if isinstance(value, str) and re.fullmatch(r"\d{1,19}", value) and low <= int(value) <= high:
        return int(value)
    raise UsageError(where, f"{key}: {shown(value)} is not a whole number from {low} to {high:,}")


def _drawing(key: str, value: Any, where: str) -> Callable[[float], Any]:
    """What makes a value of a number from 0 to 1: one of a list, or of a range, in four digits."""
    if isinstance(value, list):
        return lambda share: value[int(share * len(value))]
    kinds = {kind.get("type") for kind in known_keys()[key].get("anyOf", [known_keys()[key]])}
    if not kinds & {"integer", "number"}:
        raise UsageError(where, "this setting is no number, so it has no range; give a list")
    try:
        low, high = (float(value[end]) for end in RANGE[:2])
        whole = "integer" in kinds
        if whole:
            low, high = (int(value[end]) for end in RANGE[:2])
    except (TypeError, ValueError):
        kind = "whole numbers" if "integer" in kinds else "numbers"
        raise UsageError(where, f"from and to of this setting must be {kind}") from None
    log = value.get("scale") == "log"
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(where, f"from {value['from']} must be below to {value['to']}")
    if log and low <= 0:
        raise UsageError(where, "a range by scale log begins above 0")

    def draw(share: float) -> str:
        # of whole numbers, each has the same share of a linear scale
        top = high + 1 if whole else high
        drawn = low * (top / low) ** share if log else low + (top - low) * share
        return str(min(int(high), math.floor(drawn))) if whole else _rounded(drawn, value)

    return draw


def _rounded(drawn: float, value: Mapping[str, str]) -> str:
    """A number in four digits, which is still within its range."""
    text = f"{drawn:.4g}"
    return (
        value["from"]
        if float(text) < float(value["from"])
        else value["to"]
        if float(text) > float(value["to"])
        else text
    )


def _checked(
    base: Path, settings: Settings, points: tuple[Settings, ...], document: Document, where: str, max_time: str | None
) -> tuple[Config, ...]:
    """The config of each point; raises UsageError that names what is wrong with any, each once."""
    below = parse(read_text(base), str(base))
    lines: dict[Place, str] = {place: f"{base}:{line}" for place, line in below.lines.items()}
    varied = "grid" if "grid" in document.content else "random"
    configs, wrong = list[Config](), dict[str, GptError]()
    for point in points:
        content = {
            section: dict(value) if isinstance(value, dict) else value or {} for section, value in below.content.items()
        }
        sources = dict(lines)
        given = [(key, value, _line(document, where, "settings", key)) for key, value in settings.items()]
        given += [(key, value, _line(document, where, varied, key)) for key, value in point.items()]
        if max_time is not None:
            given.append(("train.max_time", max_time, "--max-time"))
        for key, value, source in given:
            section, _, name = key.partition(".")
            if isinstance(content.setdefault(section, {}), dict):  # else validation reports that it is no section
                content[section][name] = value
            sources[section, name] = source
        try:
            configs.append(validate(content, str(base), sources))
        except GptError as error:
            for problem in (error, *error.others):
                wrong.setdefault(str(problem), problem)
                problem.others = []
    if wrong:
        raise together(list(wrong.values()))
    return tuple(configs)
