"""Parse a strict subset of YAML: mappings, lists and text.

Every scalar except null stays text until the declared type reads it, so YAML does not reinterpret `no`, `010`, `3e-4`
or `12:30`. Tags, anchors, aliases, merge keys and repeated keys are errors that name their line.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpt_cli.common.limits import CONFIG_BYTES, CONFIG_LEVELS, CONFIG_NODES
from gpt_cli.common.mistyped import full_width
from gpt_cli.common.untrusted_files import encoding_hint, read_bytes
from gpt_cli.errors import GptError, UsageError, shown, together, visible

_FULL_WIDTH_KEY = re.compile(r"\s*([\w.]+\s*：)")
_INDENT = "the indentation has full-width spaces; type half-width ones"
_NO_SPACE = re.compile(r"\s*([A-Za-z_][\w.]*):([^\s/\\].*)")  # a path may begin with a letter and a colon
NULLS = ("", "~", "null", "Null", "NULL")

KeyPath = tuple[str, ...]


@dataclass
class Document:
    """The content of a config file, and the line of each key: (section,) or (section, key) -> line."""

    content: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)


def read_config_text(path: Path) -> str:
    """Return the text of a config file; raise UsageError for a file that is missing, too large or not UTF-8."""
    content = read_bytes(path, UsageError, most=("a config", CONFIG_BYTES))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{content[error.start]:02x} at offset {error.start}"
        sentence = f"a config must be UTF-8 text, but {byte} is not"
        raise UsageError(shown(path), sentence, hint=encoding_hint(content, str(path))) from error


def parse(text: str, where: str) -> Document:
    """Parse YAML that consists of mappings, lists and text; for anything else, raise UsageError about `where:line`."""
    try:
        return _read(text, where)
    except (yaml.MarkedYAMLError, UsageError) as error:
        for number, line in enumerate(text.split("\n"), 1):
            if key := _FULL_WIDTH_KEY.match(line):
                raise UsageError(_at(where, number), full_width(key[1]) or "") from error
            if wrong := _INDENT if line.lstrip(" ").startswith("\u3000") else _without_space(line):
                raise UsageError(_at(where, number), wrong) from error
        if isinstance(error, UsageError):
            raise
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(_at(where, line), f"this is not YAML: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        character = f"the character U+{error.character:04X} at position {error.position}"
        raise UsageError(where, f"YAML does not allow {character}") from error
    except (OverflowError, ValueError) as error:  # numbers in escapes and directives that no text contains
        raise UsageError(where, f"this is not YAML: {shown(error)}") from error


def _read(text: str, where: str) -> Document:
    """Return the Document in `text`; check each event of the parser first, so that deep nesting does no harm."""
    documents: list[Any] = []
    enclosing: list[tuple[KeyPath, Any]] = [((), documents)]  # the mappings and lists that are still open
    key_path: KeyPath | None = None  # of the key whose value comes next
    lines: dict[KeyPath, int] = {}
    repeated: list[GptError] = []
    num_nodes = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        outer, content = enclosing[-1]
        line = event.start_mark.line + 1
        wants_key = isinstance(content, dict) and key_path is None
        if refused := _refusal(event, len(enclosing), wants_key=wants_key, seen=len(documents)):
            raise UsageError(_at(where, line), refused)
        num_nodes += isinstance(event, yaml.NodeEvent)
        if num_nodes > CONFIG_NODES:
            raise UsageError(_at(where, line), f"a config has at most {CONFIG_NODES:,} keys and values")
        if isinstance(event, yaml.CollectionEndEvent):
            enclosing.pop()
        elif isinstance(event, yaml.ScalarEvent) and wants_key:
            key_path = (*outer, event.value)
            if key_path in lines and event.value in content:
                name = shown(".".join(key_path))
                repeated.append(UsageError(_at(where, line), f"{name} is already set on line {lines[key_path]}"))
            lines[key_path] = line
        elif isinstance(event, yaml.NodeEvent):
            if len(enclosing) == 2 and (wrong := _without_space(getattr(event, "value", ""))):  # instead of a section
                raise UsageError(_at(where, line), wrong)
            empty: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            value = empty if isinstance(event, yaml.CollectionStartEvent) else _scalar(event)
            if isinstance(content, dict):
                assert key_path is not None, "a key comes before its value"
                content[key_path[-1]] = value
            else:
                content.append(value)
            if isinstance(event, yaml.CollectionStartEvent):
                enclosing.append((key_path or outer, value))
            key_path = None
    if repeated:
        raise together(repeated)
    return Document(documents[0] or {} if documents else {}, lines)


def _scalar(event: Any) -> str | None:
    return None if event.style is None and event.value in NULLS else event.value


def _refusal(event: Any, depth: int, *, wants_key: bool, seen: int) -> str | None:
    """Return why a YAML event at nesting `depth` is not allowed; None if it is allowed.

    `seen` is the number of documents before the event; `wants_key` is true if the event must be a key.
    """
    if isinstance(event, yaml.DocumentStartEvent) and seen:
        return "a second document starts here, but a config is one document"
    if not isinstance(event, yaml.NodeEvent):
        return None
    if isinstance(event, yaml.AliasEvent):
        return f"aliases such as *{visible(event.anchor)} are not allowed; write the value out"
    if event.anchor:
        return f"anchors such as &{visible(event.anchor)} are not allowed; write the value out"
    if tag := getattr(event, "tag", None):
        return f"tags such as {shown(tag)} are not allowed"
    scalar = isinstance(event, yaml.ScalarEvent)
    if wants_key and not scalar:
        return "a key must be plain text"
    if wants_key and getattr(event, "value", None) == "<<":
        return "merge keys (<<) are not allowed; write the values out"
    if wants_key and getattr(event, "value", "").startswith("\u3000"):
        return _INDENT
    if depth == 1 and not (isinstance(event, yaml.MappingStartEvent) or (scalar and _scalar(event) is None)):
        return "a config consists of sections such as `model:`, with settings below them"
    if depth > CONFIG_LEVELS and not scalar:
        return f"this is nested too deeply; a config has at most {CONFIG_LEVELS} levels"
    return None


def _without_space(text: str) -> str | None:
    """Return a sentence about a setting such as d_model:32, which YAML takes for a word; None for other texts."""
    match = _NO_SPACE.fullmatch(text.rstrip())
    if not match:
        return None
    right = shown(": ".join(match.groups()), 40)
    return f"{shown(text.strip(), 40)} has no space after its colon; type {right}"


def _at(where: str, line: int) -> str:
    """Return `where:line` for a file; for a field of a request, such as ‹settings›, return `where` alone."""
    return where if where.startswith("‹") else f"{where}:{line}"
