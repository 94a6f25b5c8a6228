"""What settings are made of: kinds of values, read from the text of a file or a flag, and sections of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

_DURATION = r"(\d{1,9}(?:\.\d{1,9})?)([smh]?)"
_LONGEST = 36_000_000.0  # seconds, 10,000 hours
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")


def _read_whole(value: Any) -> Any:
    """Text such as `12` or `100_000` as an int; other text as a ValueError that says how to write it."""
    if isinstance(value, bool):
        raise ValueError("is not a whole number")
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"[+-]?\d{1,19}(_\d{1,19})*", value):
        return int(value)
    if re.fullmatch(r"[+-]?\d{1,9}(\.\d{0,9})?([eE][+-]?\d{1,2})?", value) and float(value).is_integer():
        raise ValueError(f"is not written as a whole number, which would be {int(float(value))}")
    raise ValueError("is not a whole number")


def read_number(value: Any) -> Any:
    """Text such as `3e-4` as a float; anything else as a ValueError."""
    if isinstance(value, bool):
        raise ValueError("is not a number")
    if not isinstance(value, str):
        return value
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", value):
        raise ValueError("is not a number")
    return float(value)


def _read_switch(value: Any) -> Any:
    """The words of YAML for true and false as a bool; anything else as a ValueError."""
    if isinstance(value, str) and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    if isinstance(value, bool):
        return value
    raise ValueError("is neither true nor false")


def _read_duration(value: Any) -> Any:
    """Seconds, or text such as `90s`, `5m` and `2h`, as seconds; anything else as a ValueError."""
    if isinstance(value, bool):
        raise ValueError("is not a duration")
    if not isinstance(value, str):
        return value
    if not (found := re.fullmatch(_DURATION, value)):
        raise ValueError("is not a duration")
    seconds = round(float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]], 3)
    if not 0 < seconds <= _LONGEST:
        raise ValueError("is not above 0 and at most 10,000 hours")
    return seconds


Whole = BeforeValidator(_read_whole)
Duration = Annotated[
    float,
    Field(gt=0, le=_LONGEST, allow_inf_nan=False),
    BeforeValidator(_read_duration),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": _LONGEST},
                {"type": "string", "pattern": f"^{_DURATION}$"},
            ]
        }
    ),
]
Number = Annotated[float, BeforeValidator(read_number), Field(allow_inf_nan=False)]
Switch = Annotated[bool, BeforeValidator(_read_switch)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1), Whole]
Size = Annotated[int, Field(ge=1, le=2**16), Whole]
Few = Annotated[int, Field(ge=1, le=1024), Whole]
Source = Annotated[str, Field(min_length=1)]


class Misfit(NamedTuple):
    """Keys of a section whose values do not fit together; the first is the one to name."""

    keys: tuple[str, ...]
    wrong: str
    allowed: str


class Section(BaseModel):
    """What all parts of a config share: unknown keys are errors, and nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def changed(self, **values: Any) -> Self:
        """A copy with other values, which are not checked; those of a section within are given as a mapping."""
        parts = {name: getattr(self, name) for name in values}
        return self.model_copy(
            update={
                name: parts[name].changed(**value) if isinstance(parts[name], Section) else value
                for name, value in values.items()
            }
        )

    def misfits(self) -> Iterator[Misfit]:
        """How values that are valid by themselves do not fit together; `reading.validate` refuses them."""
        return iter(())

    def unused_keys(self) -> list[tuple[str, str]]:
        """Keys that were changed although others leave them without use, and which."""
        return []

    def _idle(self, key: str, used: object) -> bool:
        return not used and getattr(self, key) != type(self).model_fields[key].default
