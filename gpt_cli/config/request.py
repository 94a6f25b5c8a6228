"""The base class of requests: each field of a request becomes a flag of `gpt` and a keyword of a Python function."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from pydantic import BeforeValidator, Field, ValidationError

from gpt_cli.common.host import Host
from gpt_cli.common.spelling import as_flags
from gpt_cli.config.config_errors import refusal
from gpt_cli.config.field_types import DEVICE_PATTERN, Few, Misfit, Section, Switch, UnreadableError, Whole, as_yaml
from gpt_cli.config.settings_reference import allowed_values
from gpt_cli.config.suggest import Arguments, accepts
from gpt_cli.errors import UsageError, shown, together, visible

RequestType = TypeVar("RequestType", bound="Request")
Value = TypeVar("Value")
Accepted = TypeVar("Accepted")
# defaults of fields of type Coerced, as Any because type checkers would refuse None and ()
NONE: Any = None
EMPTY: Any = ()
_MISSING = "a value is missing"


class Coerced(Generic[Value, Accepted]):
    """A type of request fields: Coerced[Path, str | Path] contains a Path, and Python callers may also pass a str."""

    if TYPE_CHECKING:

        def __get__(self, request: Any, kind: Any, /) -> Value: ...
        def __set__(self, request: Any, value: Accepted, /) -> None: ...

    def __class_getitem__(cls, kinds: Any) -> Any:
        return kinds[0]


@runtime_checkable
class LoadedRun(Protocol):
    """Protocol of the result of `gpt_cli.load`, whose class cannot be imported without torch."""

    @property
    def header(self) -> Any: ...


@dataclass(frozen=True)
class Flag:
    """Command-line details of a request field, such as its placeholder and the words that a shell offers after TAB."""

    metavar: str = ""  # the placeholder of the value in help
    offers: str = ""  # a function of cli/completion.py: what a shell offers after TAB
    position: bool = False  # an argument without a flag


class Request(Section):
    """Base class of command arguments: a class docstring is a command's help, a field description is a flag's help."""

    has_json: ClassVar[bool] = True  # whether the command has --json
    of_python: ClassVar[tuple[str, ...]] = ("progress",)  # the fields that are no flags
    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = ()  # groups whose first field excludes the others

    progress: Annotated[Switch, Field(description="Draw bars.")] = False  # the command line does unless --quiet

    def misfits(self) -> Iterator[Misfit]:
        """Yield an error (Misfit) for each group in `exclusive` whose first field and another field are set."""
        for first, *others in self.exclusive:
            yield from self.apart(first, *others)

    def apart(self, first: str, *others: str, value: str | None = None) -> Iterator[Misfit]:
        """Yield a Misfit (an error) if `first` and any of `others` are set; with `value`, it says first=value."""
        if fields := [name for name in others if self._has(name)] if self._has(first) else []:
            beside = first if value is None else f"{first}={value}"
            yield Misfit((fields[0],), f"‹{fields[0]}› and ‹{beside}› cannot be combined; leave one of them out")

    def _has(self, name: str) -> bool:
        return name in self.model_fields_set and getattr(self, name) is not False

    def require_shown(self, *, json: bool) -> None:
        """Raise UsageError if the result cannot be shown on a terminal; `json` is true if --json is set."""

    def find(self, host: Host) -> Any:
        """Find and return the files that the request names, so that their errors come before torch is imported."""


def read_request(kind: type[RequestType], values: Mapping[str, Any]) -> RequestType:
    """Build a request of class `kind` from `values` (by name); raise UsageError for wrong or conflicting values."""
    try:
        request = kind.model_validate(values)
    except ValidationError as error:
        raise together(_refusals(kind, error, values)) from None
    if misfits := list(request.misfits()):
        fields = (f"{one.keys[0]}=False" if values.get(one.keys[0]) is False else one.keys[0] for one in misfits)
        raise together(
            [UsageError(f"‹{field}›", one.sentence, hint=one.hint) for field, one in zip(fields, misfits, strict=True)]
        )
    return request


def refused(kind: type[Request], arguments: Mapping[str, Any]) -> list[UsageError]:
    """Return an error for each wrong value in `arguments` of request class `kind`, but not for missing arguments."""
    values = {name: value for name, value in arguments.items() if name in kind.model_fields and value not in (None, [])}
    try:
        kind.model_validate(values)
    except ValidationError as error:
        return [each for each in _refusals(kind, error, values) if each.sentence != _MISSING]
    return []


def _refusals(kind: type[Request], error: ValidationError, values: Mapping[str, Any]) -> list[UsageError]:
    """Return one error for each field of `values` that pydantic's `error` refuses, or that is missing or unknown."""
    schemas = kind.model_json_schema()["properties"]
    first = {str(details["loc"][0]): details for details in reversed(error.errors())}
    errors = []
    for name in filter(first.__contains__, kind.model_fields):
        details = first[name]
        if details["type"] == "missing":
            errors.append(UsageError(f"‹{name}›", _MISSING))
            continue
        value = details["input"] if len(details["loc"]) > 1 else values[name]  # an element, or the whole value
        # Python may give another type than text: 5, which is not "5"
        said = shown(value) if isinstance(value, str | os.PathLike) else visible(repr(value), 200)
        allowed = allowed_values(name, schemas[name].get("items", schemas[name]))  # for a list, those of each element
        allowed = [word for word in allowed if word != "null"]
        sentence, hint = refusal(value, details, allowed, partial(accepts, kind, name), f"‹{name}={{}}›")
        if hint is None and isinstance(value, list | tuple):
            hint = "call the function once for each of them"
        errors.append(UsageError(f"‹{name}›", f"{said} {sentence}", hint=hint))
    for name in (name for name in first if name not in kind.model_fields):
        fields = [*(field for field, _, _ in flags_of(kind)), *kind.of_python]
        run = next((field for field in ("run", "path") if field in kind.model_fields), "")
        placeholders = {field: "" if kind.model_fields[field].annotation is bool else "VALUE" for field in fields}
        hint = Arguments(placeholders, kind, run).hint(name, as_yaml(values[name]))
        hint = hint or f"the arguments are {', '.join(fields)}"
        errors.append(UsageError(name, "there is no such argument", hint=hint))
    return errors


def _read_path(value: Any) -> Any:
    """Return a path with `~` expanded, as shells keep `~` inside quotes; raise UnreadableError for an empty path."""
    if not isinstance(value, str | os.PathLike):
        return value
    if not (text := os.fspath(value)).strip():
        raise UnreadableError("is empty; name a file or a directory")
    return os.path.expanduser(text)


def _not_empty(value: Any) -> Any:
    """Return a value unchanged; raise UnreadableError if it is an empty text."""
    if value == "":
        raise UnreadableError("is empty; leave it out, or give it a value")
    return value


def read_texts(value: Any) -> Any:
    """Wrap a single text or path in a tuple; return other values unchanged."""
    return (value,) if isinstance(value, str | os.PathLike) else value


def _read_settings(value: Any) -> Any:
    """Return settings as texts section.key=value, the form of --set; Python callers may pass a mapping or a text."""
    if isinstance(value, Mapping):
        return [f"{key}={as_yaml(each)}" for key, each in value.items()]
    return read_texts(value)


Each = TypeVar("Each")
Several = Annotated[Sequence[Each], BeforeValidator(read_texts)]
Text = Annotated[str, BeforeValidator(_not_empty)]
ReadPath = Annotated[Path, BeforeValidator(_read_path)]
ReadName = Annotated[Text, BeforeValidator(_read_path)]
PathText = Coerced[ReadPath, str | Path]
MaybePath = Coerced[ReadPath | None, str | Path | None]
NamedPath = Coerced[ReadName, str | Path]  # a path, or the name of something
NamedOrLoaded = Coerced[ReadName | None, str | Path | LoadedRun | None]
MaybeNamedPath = Coerced[ReadName | None, str | Path | None]
NamedPaths = Annotated[Coerced[Sequence[ReadName], str | Path | Sequence[str | Path]], BeforeValidator(read_texts)]
Settings = Annotated[
    Coerced[Sequence[Text], str | Sequence[str] | Mapping[str, object]],
    BeforeValidator(_read_settings),
    Flag("KEY=VALUE"),
    Field(description="Override one setting, e.g. model.d_model=256. Repeatable."),
]
# Python may pass digits, such as the step of a checkpoint, as a number
ReadDigits = BeforeValidator(lambda value: str(value) if isinstance(value, Integral) else value)
Digits = Coerced[Annotated[str, ReadDigits] | None, str | int | None]
WhichRun = Annotated[
    Coerced[ReadPath | None, str | Path | LoadedRun | None],
    Flag("PATH", offers="runs"),
    Field(
        description="A run, by its path or by its name under runs/, or one checkpoint file. Default: the newest run "
        "under runs/."
    ),
]
WhichCheckpoint = Annotated[
    Digits,
    Flag("WHICH", offers="checkpoints"),
    Field(description="best, last or a step of a run. Default: the best intact checkpoint."),
]
Prompt = Annotated[str | None, Field(description="The prompt; - reads it from stdin.")]
CONFIG = Field(
    description="A YAML file, or the name of a shipped config: small, tiny, modern, multi-head, grouped-query, "
    "latent, induction, sums, shakespeare, shakespeare-cpu, smoke."
)
ConfigFile = Annotated[NamedPath, Flag("FILE", offers="configs"), CONFIG]
MaybeConfigFile = Annotated[MaybeNamedPath, Flag("FILE", offers="configs"), CONFIG]
Sources = Annotated[
    NamedPaths, Flag("SOURCE", offers="texts", position=True), Field(description="The text, as in gpt train --data.")
]
Device = Annotated[
    Annotated[str, Field(pattern=DEVICE_PATTERN)] | None,
    Flag("NAME", offers="devices"),
    Field(description="auto, cpu, cuda, cuda:N, mps or xpu. Default: auto."),
]
MAX_SEED = 2**63 - 1
Seed = Annotated[int, Field(ge=0, le=MAX_SEED), Whole]
Threads = Annotated[
    Few | None, Field(description="Processor threads to compute with. Default: as many as torch chooses.")
]


def flags_of(kind: type[Request]) -> Sequence[tuple[str, Any, Flag]]:
    """Return (name, pydantic field, Flag) for each field of a request that the command line accepts."""
    return [
        (name, field, next((each for each in field.metadata if isinstance(each, Flag)), Flag()))
        for name, field in kind.model_fields.items()
        if name not in kind.of_python
    ]


def flag_of(name: str, flag: Flag) -> str:
    """Return how the command line spells a field: --top-k for top_k, PATH for a positional argument."""
    return flag.metavar if flag.position else as_flags(f"‹{name}›")
