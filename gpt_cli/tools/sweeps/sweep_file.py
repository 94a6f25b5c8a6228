"""The file of a sweep: a base config, and settings of which each combination, or some drawn at random, is trained."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpt_cli.common.limits import CONFIG_PROBLEMS, SWEEP_POINTS
from gpt_cli.config.config_errors import line_of, no_setting, wrong_values
from gpt_cli.config.load import find_config, flat, validate
from gpt_cli.config.schema import SEED, Config
from gpt_cli.config.settings_reference import known_keys, shipped_configs
from gpt_cli.config.strict_yaml import Document, KeyPath, parse, read_text
from gpt_cli.config.suggest import nearest
from gpt_cli.errors import GptError, UsageError, collecting, counted, shown, together
from gpt_cli.tools.sweeps.search_space import (
    RANGE,
    SECTIONS,
    Settings,
    line,
    points_of,
    repeats_of,
    types_of,
)

KEYS = ("base", "settings", "grid", "random", "num_runs", "seed", "repeats")


@dataclass(frozen=True)
class Sweep:
    """A base config with what all points share, and the points: what each sets beside."""

    path: Path
    base: Path
    settings: Settings
    points: tuple[Settings, ...]
    configs: tuple[Config, ...]  # of the points
    record: Mapping[str, Any]  # what it was made from: section.key -> value
    repeats: int = 1  # how many points differ in their seed alone

    def changed(self, point: Settings) -> dict[str, Any]:
        """All that a point sets over the base."""
        return {**self.settings, **point}


def read_sweep(path: Path, max_time: str | None = None) -> Sweep:
    """Read a file, and check the config of every point; `max_time` is the `--max-time` of each.

    Raises UsageError for all that is wrong, with the nearest known keys. Where a part of the file is malformed, the
    values in the rest are checked one by one: how they fit together depends on what is missing.
    """
    where = str(path)
    document = parse(read_text(path), where)
    content = document.content
    wrong = [*_wrong_keys(document, where)]
    sound: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    wrong += itertools.islice(_wrong_settings(document, where, max_time, sound), CONFIG_PROBLEMS)
    base = below = None
    points = list[Settings]()
    with collecting(wrong):
        base = _base(content["base"], path) if "base" in content else None
        below = base and parse(read_text(base), str(base))
    with collecting(wrong):
        points = [*points_of(sound, document, where)]
    repeats = 1
    with collecting(wrong):
        repeats = repeats_of(document, where, sound, len(points))
    if base is None or below is None:
        raise together(_by_line(wrong))
    check = _Check(base, below, sound["settings"], document, where, max_time)
    if wrong:
        raise together(_by_line([*wrong, *check.values(sound)]))
    configs = check.configs(points)
    if repeats > 1:
        points = [
            {**point, SEED: str(config.train.seed + number)}
            for point, config in zip(points, configs, strict=True)
            for number in range(repeats)
        ]
        configs = check.configs(points)
    record = {**flat(content), **flat(below.content, "base."), "max_time": max_time}
    return Sweep(path, base, sound["settings"], tuple(points), configs, record, repeats)


def _by_line(wrong: Iterable[GptError]) -> list[GptError]:
    """Each problem once, in the order of the file."""
    return sorted({str(problem): problem for problem in wrong}.values(), key=line_of)


def _wrong_keys(document: Document, where: str) -> Iterator[GptError]:
    """What is wrong with the keys: some that no sweep has, missing ones, and those that contradict each other."""
    content = document.content
    unknown = [key for key in content if key not in KEYS]
    for key in unknown[:CONFIG_PROBLEMS]:
        near = nearest(key, KEYS)
        hint = f"did you mean {near}?" if near else f"the keys are {', '.join(KEYS)}"
        yield UsageError(line(document, where, key), f"a sweep has no key {shown(key)}", hint=hint, about=key)
    if len(unknown) > CONFIG_PROBLEMS:
        yield UsageError(where, f"{counted(len(unknown) - CONFIG_PROBLEMS, 'more key')} cannot be read")
    if "base" not in content:
        yield UsageError(where, "base is missing; name a shipped config or a config file")
    kinds = [key for key in ("grid", "random") if key in content]
    if len(kinds) != 1:
        sentence = "grid and random cannot be combined; leave one of them out" if kinds else "grid or random is missing"
        yield UsageError(where, sentence, hint=None if kinds else "grid: {train.learning_rate: [1e-3, 3e-3]}")
    if kinds == ["grid"]:
        for key in ("num_runs", "seed"):
            if key in content:
                sentence = f"{key} belongs to random; a grid trains every combination"
                yield UsageError(line(document, where, key), sentence)
    if kinds == ["random"] and "num_runs" not in content:
        yield UsageError(where, f"num_runs is missing; use a whole number from 1 to {SWEEP_POINTS:,}")


def _base(name: Any, path: Path) -> Path:
    """The config that a sweep begins from: a path relative to the file, or a shipped name."""
    if not isinstance(name, str):
        raise UsageError(f"{path}: base", "it must be the name of a shipped config or of a config file")
    beside = path.parent / Path(name).expanduser()
    if beside.is_file():
        return beside
    shipped = shipped_configs()
    return shipped[name] if name in shipped else find_config(str(beside))


def _wrong_settings(
    document: Document, where: str, max_time: str | None, sound: dict[str, dict[str, Any]]
) -> Iterator[GptError]:
    """What is wrong with the names of settings and the form of what they are given; `sound` receives the others."""
    known, seen = known_keys(), dict[str, str]()
    for section in SECTIONS:
        if section not in document.content:
            continue
        given = document.content[section] or {}
        may_be_empty = section == "settings" or {"grid", "random"} <= document.content.keys()
        if not isinstance(given, dict) or not (given or may_be_empty):
            written = "value" if section == "settings" else "list"
            yield UsageError(line(document, where, section), f"{section} must have lines `section.key: {written}`")
            continue
        for key, value in given.items():
            at = line(document, where, section, key)
            if key not in known:
                yield no_setting(tuple(key.split(".")), at)
            elif key in seen:
                yield UsageError(at, f"{key} is already set by {seen[key]}")
            elif key in ("train.max_time", "train.max_steps") and max_time is not None:
                yield UsageError(at, f"{key} and --max-time cannot be combined; leave one of them out")
            elif sentence := _wrong_choice(key, value, section):
                yield UsageError(f"{at}: {key}", sentence)
            else:
                sound[section][key] = value
            seen.setdefault(key, section)


def _wrong_choice(key: str, value: Any, section: str) -> str | None:
    """Why a section cannot take a value of a setting; None where it can."""
    if section == "settings":
        several = isinstance(value, dict) or (isinstance(value, list) and "array" not in types_of(key))
        return (
            "settings has one value for all runs; a list to try belongs to grid, a range to random" if several else None
        )
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


@dataclass(frozen=True)
class _Check:
    """Makes configs of points: what the base says, what all points set, what each sets, and --max-time."""

    base: Path
    below: Document  # of the base
    settings: Settings
    document: Document
    where: str
    max_time: str | None

    def configs(self, points: Sequence[Settings]) -> tuple[Config, ...]:
        """The config of each point; raises UsageError that names what is wrong with any, each once."""
        configs, wrong = list[Config](), list[GptError]()
        for point in points:
            with collecting(wrong):
                content, sources = self._of(point)
                configs.append(validate(content, str(self.base), sources))
        if wrong:
            raise together(list({str(problem): problem for problem in wrong}.values()))
        return tuple(configs)

    def values(self, sound: Mapping[str, Mapping[str, Any]]) -> Iterator[GptError]:
        """What is wrong with any value by itself, of those that have the right form."""
        varied = [item for section in SECTIONS[1:] for item in sound[section].items()]
        lists = {key: value for key, value in varied if isinstance(value, list)}
        for number in range(min(SWEEP_POINTS, max(map(len, lists.values()), default=1))):
            content, sources = self._of({key: values[min(number, len(values) - 1)] for key, values in lists.items()})
            try:
                Config.model_validate(content)
            except ValidationError as error:
                yield from wrong_values(error, content, str(self.base), sources)[0]

    def _of(self, point: Settings) -> tuple[dict[str, Any], dict[KeyPath, str]]:
        """The sections of a point, and where each setting comes from."""
        content = {
            section: dict(value) if isinstance(value, dict) else value or {}
            for section, value in self.below.content.items()
        }
        sources: dict[KeyPath, str] = {place: f"{self.base}:{number}" for place, number in self.below.lines.items()}
        varied = "grid" if "grid" in self.document.content else "random"
        given = [(key, value, "settings") for key, value in self.settings.items()]
        given += [(key, value, varied) for key, value in point.items()]
        placed = [(key, value, line(self.document, self.where, section, key)) for key, value, section in given]
        if self.max_time is not None:
            placed.append(("train.max_time", self.max_time, "--max-time"))
        for key, value, source in placed:
            section, _, name = key.partition(".")
            if isinstance(content.setdefault(section, {}), dict):  # else validation reports that it is no section
                content[section][name] = value
            sources[section, name] = source
        return content, sources
