"""Read a sweep's file: a base config, and settings to train in all combinations (grid) or in random draws."""

import itertools
import math
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from gpt_cli.common.limits import CONFIG_PROBLEMS, SWEEP_POINTS
from gpt_cli.common.mistyped import nearest
from gpt_cli.config.config_errors import line_of, no_setting, wrong_values
from gpt_cli.config.load import dotted_keys, find_config, is_plain, overridden, read_document, validate
from gpt_cli.config.schema import SEED, Config
from gpt_cli.config.settings_reference import setting_schemas, shipped_configs
from gpt_cli.config.strict_yaml import KeyPath, parse, read_config_text
from gpt_cli.errors import GptError, UsageError, collecting, counted, shown, together

KEYS = ("base", "settings", "grid", "random", "num_runs", "seed", "repeats")
_SECTIONS = ("settings", "grid", "random")
_RANGE = ("from", "to", "scale")
_HUGE = 1e300  # beyond it a range cannot be computed
_DRAWS = 1000  # that give no new point, after which a random sweep counts as exhausted

Settings = Mapping[str, Any]  # section.key -> a value as a config file has it


class Sweep(NamedTuple):
    """A sweep file as read: base config's path, settings of all runs, each run's own settings (`points`) and config."""

    path: Path
    base: Path
    settings: Settings
    points: tuple[Settings, ...]
    configs: tuple[Config, ...]  # of the points
    record: Mapping[str, Any]  # the content of the file and of the base config: section.key -> value


def read_sweep(path: Path, max_time: str | None = None) -> Sweep:
    """Read a sweep's file, and check the config of every run; `max_time` is the `--max-time` of each run.

    Raises one UsageError with all mistakes, and the nearest known keys as hints. If a part of the file is malformed,
    other values are checked one by one, since a whole config would need that part.
    """
    file = _File(path, max_time)
    wrong = [*file.wrong_keys(), *itertools.islice(file.wrong_settings(), CONFIG_PROBLEMS)]
    base, points, repeats = None, list[Settings](), 1
    with collecting(wrong):
        base = file.read_base()
    with collecting(wrong):
        points = file.points()
    with collecting(wrong):
        repeats = file.repeats(len(points))
    if wrong or base is None:
        wrong += [] if base is None else file.wrong_values()
        raise together(sorted(_each_once(wrong), key=line_of))
    configs = file.configs(points)
    if repeats > 1:
        first = configs[0].train.seed  # that of all points, since `repeats` has refused a sweep that varies it
        points = [{**point, SEED: str(first + number)} for point in points for number in range(repeats)]
        configs = file.configs(points)
    record = {**dotted_keys(file.content), **dotted_keys(file.below.content, "base."), "max_time": max_time}
    settings = file.sound["settings"] | ({} if max_time is None else {"train.max_time": max_time})
    return Sweep(path, base, settings, tuple(points), configs, record)


def _each_once(wrong: Iterable[GptError]) -> list[GptError]:
    return list({str(problem): problem for problem in wrong}.values())


class _File:
    """The content of a sweep's file and of its base config; `sound` maps each section to its well-formed settings."""

    def __init__(self, path: Path, max_time: str | None):
        self.path, self.where, self.max_time = path, str(path), max_time
        self.document = parse(read_config_text(path), self.where)
        self.content = self.document.content
        self.sound: dict[str, dict[str, Any]] = {section: {} for section in _SECTIONS}
        self.base, self.below = path, self.document  # until `read_base`

    def at(self, *key_path: str) -> str:
        """Return the file and line of a key, or the file alone if the line is unknown."""
        line = self.document.lines.get(key_path)
        return self.where if line is None else f"{self.where}:{line}"

    def wrong_keys(self) -> Iterator[GptError]:
        """Yield errors about top-level keys: unknown, missing, and contradictory ones."""
        unknown = [key for key in self.content if key not in KEYS]
        for key in unknown[:CONFIG_PROBLEMS]:
            near = nearest(key, KEYS)
            hint = f"did you mean {near}?" if near else f"the keys are {', '.join(KEYS)}"
            yield UsageError(self.at(key), f"a sweep has no key {shown(key)}", hint=hint, about=key)
        if len(unknown) > CONFIG_PROBLEMS:
            yield UsageError(self.where, f"{counted(len(unknown) - CONFIG_PROBLEMS, 'more key')} cannot be read")
        if "base" not in self.content:
            yield UsageError(self.where, "base is missing; name a shipped config or a config file")
        kinds = [key for key in _SECTIONS[1:] if key in self.content]
        if not kinds:
            hint = "grid: {train.learning_rate: [1e-3, 3e-3]}"
            yield UsageError(self.where, "grid or random is missing", hint=hint)
        elif len(kinds) == 2:
            yield UsageError(self.where, "grid and random cannot be combined; leave one of them out")
        elif kinds == ["grid"]:
            for key in ("num_runs", "seed"):
                if key in self.content:
                    yield UsageError(self.at(key), f"{key} belongs to random; a grid trains every combination")
        elif "num_runs" not in self.content:
            yield UsageError(self.where, f"num_runs is missing; use a whole number from 1 to {SWEEP_POINTS:,}")

    def wrong_settings(self) -> Iterator[GptError]:
        """Yield errors for wrong settings (unknown, repeated, malformed, set by max_time); add others to `sound`."""
        keys, seen = setting_schemas(), dict[str, str]()
        for section in filter(self.content.__contains__, _SECTIONS):
            settings = self.content[section] or {}
            may_be_empty = section == "settings" or {"grid", "random"} <= self.content.keys()
            if not isinstance(settings, dict) or not (settings or may_be_empty):
                form = "value" if section == "settings" else "list"
                yield UsageError(self.at(section), f"{section} must have lines `section.key: {form}`")
                continue
            for key, value in settings.items():
                at = self.at(section, key)
                if key not in keys:
                    yield no_setting(tuple(key.split(".")), at)
                elif key in seen:
                    yield UsageError(at, f"{key} is already set by {seen[key]}")
                elif key in ("train.max_time", "train.max_steps") and self.max_time is not None:
                    yield UsageError(at, f"{key} and ‹max_time› cannot be combined; leave one of them out")
                elif sentence := _wrong_form(key, value, section):
                    yield UsageError(f"{at}: {key}", sentence)
                else:
                    self.sound[section][key] = value
                seen.setdefault(key, section)

    def read_base(self) -> Path | None:
        """Read the base config, a path beside the sweep's file or a shipped name; return its path, or None if unset."""
        if "base" not in self.content:
            return None
        if not isinstance(name := self.content["base"], str):
            raise UsageError(f"{self.where}: base", "it must be the name of a shipped config or of a config file")
        beside = self.path.parent / os.path.expanduser(name)
        self.base = beside if beside.is_file() else shipped_configs().get(name) or find_config(str(beside))
        self.below = read_document(self.base)
        return self.base

    def points(self) -> list[Settings]:
        """Return the runs' settings: all combinations of a grid, the last setting changing fastest, or random draws."""
        if "grid" not in self.content:
            return self._drawn() if "num_runs" in self.content else []
        lists = self.sound["grid"]
        if (count := math.prod(map(len, lists.values()))) > SWEEP_POINTS:
            sentence = f"the grid has {count:,} points, but a sweep has at most {SWEEP_POINTS:,}"
            raise UsageError(self.where, sentence, hint="use random with num_runs, which draws some of the points")
        return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]

    def _drawn(self) -> list[Settings]:
        """Draw `num_runs` different combinations of settings, with the file's seed; raise UsageError if fewer exist."""
        wrong, count, seed = list[GptError](), 0, 0
        draws = dict[str, Callable[[float], Any]]()
        with collecting(wrong):
            count = self._whole("num_runs", 1, SWEEP_POINTS)
        with collecting(wrong):
            seed = self._whole("seed", 0, 2**63 - 1) if "seed" in self.content else 0
        for key, value in self.sound["random"].items():
            with collecting(wrong):
                draws[key] = _drawing(key, value, f"{self.at('random', key)}: {key}")
        if wrong:
            raise together(wrong)
        generator, points, in_vain = random.Random(seed), list[Settings](), 0
        while len(points) < count and draws:
            point = {key: draw(generator.random()) for key, draw in draws.items()}
            if point not in points:
                points.append(point)
                in_vain = 0
            elif (in_vain := in_vain + 1) == _DRAWS:
                sentence = f"num_runs is {count}, but there are only {counted(len(points), 'different point')}"
                raise UsageError(self.at("num_runs"), sentence)
        return points

    def repeats(self, num_points: int) -> int:
        """Return how many seeds train each of `num_points` combinations; UsageError if `repeats` is not valid."""
        if "repeats" not in self.content:
            return 1
        repeats = self._whole("repeats", 1, SWEEP_POINTS)
        if varied := next((section for section in _SECTIONS[1:] if SEED in self.sound[section]), None):
            raise UsageError(self.at(varied, SEED), f"{SEED} contradicts repeats; use one of them")
        if num_points * repeats > SWEEP_POINTS:
            sentence = f"{num_points:,} points with {repeats} repeats are {num_points * repeats:,} runs"
            raise UsageError(self.at("repeats"), f"{sentence}, but a sweep has at most {SWEEP_POINTS:,}")
        return repeats

    def _whole(self, key: str, low: int, high: int) -> int:
        value = self.content[key]
        if isinstance(value, str) and re.fullmatch(r"\d{1,19}", value) and low <= int(value) <= high:
            return int(value)
        raise UsageError(self.at(key), f"{key}: {shown(value)} is not a whole number from {low} to {high:,}")

    def configs(self, points: Sequence[Settings]) -> tuple[Config, ...]:
        """Return the config of each point (settings of a run); raise one UsageError with all different errors."""
        configs, wrong = list[Config](), list[GptError]()
        for point in points:
            with collecting(wrong):
                content, sources = self._of(point)
                configs.append(validate(content, str(self.base), sources))
        if wrong:
            raise together(_each_once(wrong))
        return tuple(configs)

    def wrong_values(self) -> Iterator[GptError]:
        """Yield errors about single values of the base config and the sweep, not about how values fit together."""
        varied = {**self.sound["grid"], **self.sound["random"]}
        lists = {key: value for key, value in varied.items() if isinstance(value, list)}
        for number in range(min(SWEEP_POINTS, max(map(len, lists.values()), default=1))):
            content, sources = self._of({key: values[min(number, len(values) - 1)] for key, values in lists.items()})
            try:
                Config.model_validate(content)
            except ValidationError as error:
                yield from wrong_values(error, content, str(self.base), sources)[0]

    def _of(self, point: Settings) -> tuple[dict[str, Any], dict[KeyPath, str]]:
        """Merge a run's settings (`point`) into the base config; return the result and each setting's file and line."""
        varied = "grid" if "grid" in self.content else "random"
        changes = {key: (self.at("settings", key), value) for key, value in self.sound["settings"].items()}
        changes |= {key: (self.at(varied, key), value) for key, value in point.items()}
        changes |= {} if self.max_time is None else {"train.max_time": ("‹max_time›", self.max_time)}
        return overridden(self.below, str(self.base), changes)


def _types_of(key: str) -> set[str | None]:
    """Return the JSON types, such as integer, that the setting `key` may have."""
    return {kind.get("type") for kind in setting_schemas()[key].get("anyOf", [setting_schemas()[key]])}


def _wrong_form(key: str, value: Any, section: str) -> str | None:
    """Return why `value` has the wrong form for a setting in `section`, or None if its form is right."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str) and not is_plain(one):
            return f"{shown(one)} is a text that ‹settings› would read as a list or as null"
    if section == "settings":
        if isinstance(value, dict) or (isinstance(value, list) and "array" not in _types_of(key)):
            return "settings has one value for all runs; a list to try belongs to grid, a range to random"
        return None
    if isinstance(value, list):
        seen = set[str]()
        for one in map(str, value):
            if one in seen:
                return f"{shown(one)} is listed twice"
            seen.add(one)
        return None if value else "the list is empty"
    if section == "grid":
        return "a grid needs a list of values, such as [1e-3, 3e-3]"
    if not isinstance(value, dict):
        return "random needs a list of values, or {from: 1e-4, to: 1e-2, scale: log}"
    if other := [key for key in value if key not in _RANGE]:
        return f"a range has from, to and scale, but no {shown(other[0])}"
    if missing := [key for key in _RANGE[:2] if key not in value]:
        return f"a range needs {' and '.join(missing)}"
    if value.get("scale", "linear") not in ("linear", "log"):
        return f"scale {shown(value['scale'])} is neither linear nor log"
    return None


def _drawing(key: str, value: Any, where: str) -> Callable[[float], Any]:
    """Return a function that maps [0, 1) to items of the list `value`, or to numbers (as text) in the range `value`."""
    if isinstance(value, list):
        return lambda share: value[int(share * len(value))]
    if not (kinds := _types_of(key)) & {"integer", "number"}:
        raise UsageError(where, "this setting is not a number, so it has no range; give a list")
    whole, log = "integer" in kinds, value.get("scale") == "log"
    try:
        low, high = ((int if whole else float)(value[end]) for end in _RANGE[:2])
    except (TypeError, ValueError):
        kind = "whole numbers" if whole else "numbers"
        raise UsageError(where, f"from and to of this setting must be {kind}") from None
    if max(abs(low), abs(high)) > _HUGE:
        raise UsageError(where, "from and to of this setting must lie between -1e300 and 1e300")
    if not low < high:
        raise UsageError(where, f"from {value['from']} must be below to {value['to']}")
    if log and low <= 0:
        raise UsageError(where, "a range with scale log must begin above 0")

    def draw(share: float) -> str:
        # on a linear scale, all whole numbers are equally probable
        top = high + 1 if whole else high
        drawn = low * (top / low) ** share if log else low + (top - low) * share
        if whole:
            return str(min(int(high), math.floor(drawn)))
        return sorted([value["from"], f"{drawn:.4g}", value["to"]], key=float)[1]  # within the range when rounded

    return draw
