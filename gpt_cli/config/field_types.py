"""Types of settings, which parse values from the text of a file or a flag, and the base class of config sections."""

import json
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from numbers import Integral
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

_AMOUNT = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_DURATION = rf"(?:{_AMOUNT}|(?=[0-9]){''.join(f'(?:{_AMOUNT}{unit})?' for unit in _UNITS)})"
_LONGEST = 36_000_000.0  # seconds, 10,000 hours
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
DEVICE_PATTERN = r"^[a-z][a-z0-9_]{0,31}(:\d{1,3})?$"  # torch decides whether this machine has it
_ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


class UnreadableError(ValueError):
    """Error for a value that a setting's type cannot read; the user sees its text, if any, or the allowed values."""


def _read_whole(value: Any) -> Any:
    """Convert text such as `12` or `100_000` to an int; raise UnreadableError for other text and for a bool."""
    if isinstance(value, bool):
        raise UnreadableError
    if not isinstance(value, str):
        return int(value) if isinstance(value, Integral) else value  # pydantic reads numpy's as floats
    if re.fullmatch(r"[+-]?[0-9]{1,19}(_[0-9]{1,19}){0,99}", value):
        return int(value)
    if re.fullmatch(r"[+-]?[0-9]{1,9}(\.[0-9]{0,9})?([eE][+-]?[0-9]{1,2})?", value) and float(value).is_integer():
        raise UnreadableError(f"must be written as a whole number, {int(float(value))}")
    raise UnreadableError


def _read_number(value: Any) -> Any:
    """Convert text such as `3e-4` to a float; raise UnreadableError for other text and for a bool."""
    if isinstance(value, bool):
        raise UnreadableError
    if not isinstance(value, str):
        return value
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", value):
        raise UnreadableError
    return float(value)


def _read_switch(value: Any) -> Any:
    """Read YAML's words for true and false as a bool; raise UnreadableError for anything else."""
    if isinstance(value, str) and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    if isinstance(value, bool):
        return value
    raise UnreadableError


def _read_duration(value: Any) -> Any:
    """Convert `90s`, `1h30m`, `1d` or a number to seconds; raise UnreadableError if it is malformed or out of range."""
    if isinstance(value, bool):
        raise UnreadableError
    if not isinstance(value, str | int | float):
        return value
    if isinstance(value, str):
        if not re.fullmatch(_DURATION, value):
            raise UnreadableError
        amounts = re.findall(rf"({_AMOUNT})([dhms]?)", value)
        value = round(sum(float(amount) * _UNITS[unit or "s"] for amount, unit in amounts), 3)
    if not 0.001 <= value <= _LONGEST:
        raise UnreadableError("is out of range; a duration is at least 1 ms and at most 10,000 hours")
    return value


def _read_list(value: Any) -> Any:
    """Wrap a single text in a list, or remove repeated texts from a list of texts; return other values unchanged."""
    if isinstance(value, str):
        return [value]
    # the declared type refuses any other value
    return list(dict.fromkeys(value)) if isinstance(value, list) and all(isinstance(v, str) for v in value) else value


def _read_source(value: Any) -> Any:
    """Return the name of a text source unchanged; raise UnreadableError if it contains NUL, which no path can."""
    if isinstance(value, str) and "\0" in value:
        raise UnreadableError("contains a NUL character, which no file name has")
    return value


def _read_separator(value: Any) -> Any:
    """Replace each escape in a text by the character it means: a backslash and an n become a newline."""
    for character, escape in _ESCAPES.items() if isinstance(value, str) else ():
        value = value.replace(escape, character)
    return value


def _write_separator(value: str) -> str:
    """Escape line breaks and tabs of a text, so that it fits on one line of a config file or a message."""
    return value.translate(str.maketrans(_ESCAPES))


def as_yaml(value: Any) -> str:
    """Format a value as in `--set` and a config file; a path or a number of numpy as its text."""
    is_json = value is None or isinstance(value, bool | int | float | list | tuple | dict)
    return json.dumps(value, ensure_ascii=False, default=str) if is_json else str(value)


class Fact(Enum):
    """A mark on a setting that allows its value to come from elsewhere than the run's own config.

    FREE: a command that resumes the run may change the value. LEARNING: an untrusted model's config may set the value.
    """

    FREE = "may change in a run that continues"
    LEARNING = "how a model learned, which may come from a stranger: no text, nothing that runs or connects, no machine"


def _schema_of_either(*schemas: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [*schemas]})


FREE, LEARNING = Fact.FREE, Fact.LEARNING
Whole = BeforeValidator(_read_whole)
Duration = Annotated[
    float,
    Field(gt=0, le=_LONGEST, allow_inf_nan=False),
    BeforeValidator(_read_duration),
    _schema_of_either(
        {"type": "number", "exclusiveMinimum": 0, "maximum": _LONGEST}, {"type": "string", "pattern": f"^{_DURATION}$"}
    ),
]
LoggerName = Literal["tensorboard", "wandb", "trackio", "swanlab"]
_NAME = {"type": "string", "enum": list(get_args(LoggerName))}
Loggers = Annotated[
    list[LoggerName], BeforeValidator(_read_list), _schema_of_either(_NAME, {"type": "array", "items": _NAME})
]
Real = BeforeValidator(_read_number)
Number = Annotated[float, Real, Field(allow_inf_nan=False)]
Switch = Annotated[bool, BeforeValidator(_read_switch)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1), Whole]
Size = Annotated[int, Field(ge=1, le=2**16), Whole]
Few = Annotated[int, Field(ge=1, le=1024), Whole]
Windows = Annotated[
    list[Size | None],
    BeforeValidator(lambda value: value if isinstance(value, list) else [value]),
    Field(min_length=1, max_length=1024),
    _schema_of_either(
        {"type": "integer", "minimum": 1, "maximum": 2**16},
        {"type": "array", "items": {"type": ["integer", "null"]}, "minItems": 1, "maxItems": 1024},
    ),
]
Source = Annotated[str, Field(min_length=1), BeforeValidator(_read_source)]
Text = Annotated[str, Field(min_length=1)]
Separator = Annotated[str, Field(min_length=1), BeforeValidator(_read_separator), PlainSerializer(_write_separator)]


class Misfit(NamedTuple):
    """An error: the values of these `keys` of a section do not fit together; the message names the first key."""

    keys: tuple[str, ...]
    sentence: str
    hint: str | None = None


class Section(BaseModel):
    """Base class for the sections of a config: unknown keys are errors, and objects are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def changed(self, **values: Any) -> Self:
        """Return a copy with new, unchecked values; a mapping changes a nested section: changed(train={"seed": 2})."""
        for name, value in values.items():
            if isinstance(section := getattr(self, name), Section):
                values[name] = section.changed(**value)
        return self.model_copy(update=values)

    def misfits(self) -> Iterator[Misfit]:
        """Yield an error (Misfit) for each group of values valid alone but not together; the base class yields none."""
        return iter(())

    def key_uses(self) -> Iterable[tuple[str, bool, str]]:
        """Return (key, is_used, cause) for each key that another setting (cause: "tokenizer.kind char") can disable."""
        return ()


def divisors(number: int) -> str:
    """Return the first 20 divisors of a number as text, such as "1, 2 or 4"."""
    *others, last = [str(n) for n in range(1, number + 1) if number % n == 0][:20]
    return f"{', '.join(others)} or {last}" if others else last
