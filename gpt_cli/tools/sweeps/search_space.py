"""The points of a sweep: every combination of lists, or some drawn at random, each perhaps with several seeds."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpt_cli.common.limits import SWEEP_POINTS
from gpt_cli.config.schema import SEED
from gpt_cli.config.settings_reference import known_keys
from gpt_cli.config.strict_yaml import Document
from gpt_cli.errors import GptError, UsageError, collecting, counted, shown, together

SECTIONS = ("settings", "grid", "random")
RANGE = ("from", "to", "scale")
_HUGE = 1e300  # beyond it a range cannot be computed
_DRAWS = 1000  # in vain, before a random sweep counts as exhausted

Settings = Mapping[str, Any]  # section.key -> a value as a config file has it


def line(document: Document, where: str, *place: str) -> str:
    line = document.lines.get(place)
    return where if line is None else f"{where}:{line}"


def points_of(sound: Mapping[str, Mapping[str, Any]], document: Document, where: str) -> Iterator[Settings]:
    """The points of a grid or those drawn at random."""
    if "grid" in document.content:
        return _grid(sound["grid"], where)
    return _draw(sound["random"], document, where) if "num_runs" in document.content else iter(())


def _grid(lists: Mapping[str, list[Any]], where: str) -> Iterator[Settings]:
    """Every combination, the last setting changing fastest."""
    if (count := math.prod(map(len, lists.values()))) > SWEEP_POINTS:
        sentence = f"the grid has {count:,} points, and a sweep at most {SWEEP_POINTS:,}"
        raise UsageError(where, sentence, hint="random draws some of many points")
    return (dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values()))


def _draw(given: Mapping[str, Any], document: Document, where: str) -> Iterator[Settings]:
    """Different points, drawn by the seed."""
    wrong, count, seed = list[GptError](), 0, 0
    draws = dict[str, Callable[[float], Any]]()
    with collecting(wrong):
        count = _whole(document, where, "num_runs", 1, SWEEP_POINTS)
    with collecting(wrong):
        seed = _whole(document, where, "seed", 0, 2**63 - 1) if "seed" in document.content else 0
    for key, value in given.items():
        with collecting(wrong):
            draws[key] = _drawing(key, value, f"{line(document, where, 'random', key)}: {key}")
    if wrong:
        raise together(wrong)
    generator, found, in_vain = random.Random(seed), list[Settings](), 0
    while len(found) < count and draws:
        point = {key: draw(generator.random()) for key, draw in draws.items()}
        if point not in found:
            found.append(point)
            in_vain = 0
        elif (in_vain := in_vain + 1) == _DRAWS:
            at = line(document, where, "num_runs")
            raise UsageError(at, f"num_runs is {count}, but there are only {counted(len(found), 'different point')}")
    return iter(found)


def repeats_of(document: Document, where: str, sound: Mapping[str, Mapping[str, Any]], num_points: int) -> int:
    """How often each point is trained, with one seed after the other; raises UsageError."""
    if "repeats" not in document.content:
        return 1
    at, repeats = line(document, where, "repeats"), _whole(document, where, "repeats", 1, SWEEP_POINTS)
    if varied := next((section for section in SECTIONS[1:] if SEED in sound[section]), None):
        raise UsageError(line(document, where, varied, SEED), f"{SEED} contradicts repeats; use one of them")
    if num_points * repeats > SWEEP_POINTS:
        sentence = f"{num_points:,} points with {repeats} repeats are {num_points * repeats:,} runs"
        raise UsageError(at, f"{sentence}, and a sweep has at most {SWEEP_POINTS:,}")
    return repeats


def _whole(document: Document, where: str, key: str, low: int, high: int) -> int:
    value = document.content[key]
    if isinstance(value, str) and re.fullmatch(r"\d{1,19}", value) and low <= int(value) <= high:
        return int(value)
    sentence = f"{key}: {shown(value)} is not a whole number from {low} to {high:,}"
    raise UsageError(line(document, where, key), sentence)


def types_of(key: str) -> set[str | None]:
    """The JSON types that a setting may have."""
    return {kind.get("type") for kind in known_keys()[key].get("anyOf", [known_keys()[key]])}


def _drawing(key: str, value: Any, where: str) -> Callable[[float], Any]:
    """What makes a value of a number from 0 to 1: one of a list, or of a range, in four digits."""
    if isinstance(value, list):
        return lambda share: value[int(share * len(value))]
    kinds = types_of(key)
    if not kinds & {"integer", "number"}:
        raise UsageError(where, "this setting is not a number, so it has no range; give a list")
    try:
        low, high = (float(value[end]) for end in RANGE[:2])
        whole = "integer" in kinds
        if whole:
            low, high = (int(value[end]) for end in RANGE[:2])
    except (TypeError, ValueError):
        kind = "whole numbers" if "integer" in kinds else "numbers"
        raise UsageError(where, f"from and to of this setting must be {kind}") from None
    log = value.get("scale") == "log"
    if max(abs(low), abs(high)) > _HUGE:
        raise UsageError(where, "from and to of this setting must lie between -1e300 and 1e300")
    if not low < high:
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
