"""YAML as this program understands it: mappings, lists and text, and nothing that surprises.

Every scalar stays text (null excepted) until the declared type reads it, so `no`, `010`, `3e-4` and `12:30`
mean what they say. Tags, anchors, aliases, merges and repeated keys are errors with their line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpt_cli.errors import GptError, UsageError, shown, together
from gpt_cli.files import read_bytes

MAX_BYTES = 1_000_000
MAX_DEPTH = 4
_NULLS = ("", "~", "null", "Null", "NULL")

Place = tuple[str, ...]


@dataclass
class Document:
    """The content of a file, and the line of each key: (section, key) -> line."""

    content: dict[str, Any]
    lines: dict[Place, int] = field(default_factory=dict)


def read_text(path: Path) -> str:
    """The text of a small UTF-8 file; raises UsageError for a missing, large or otherwise encoded one."""
    content = read_bytes(path, UsageError)
    if len(content) > MAX_BYTES:
        raise UsageError(shown(path), f"has {len(content):,} bytes", f"a config has at most {MAX_BYTES:,}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wrong = f"byte 0x{content[error.start]:02x} at offset {error.start} is not UTF-8"
        raise UsageError(shown(path), wrong, "a config is UTF-8 text") from error


def parse(text: str, where: str) -> Document:
    """Mappings and lists of text from YAML; raises UsageError with the line of what is not allowed."""
    reader = _Reader(text, where)
    try:
        return reader.document()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{where}:{line}", f"not YAML, {error.problem}") from error
    except (OverflowError, ValueError) as error:  # numbers in escapes and directives that no text holds
        raise UsageError(where, f"not YAML, {shown(error)}") from error
    except yaml.reader.ReaderError as error:
        wrong = f"character U+{error.character:04X} at position {error.position}"
        raise UsageError(where, wrong, "YAML does not allow it") from error


class _Reader:
    """Walks the parser's events; never recurses deeper than MAX_DEPTH."""

    def __init__(self, text: str, where: str):
        self.events: Iterator[Any] = yaml.parse(text, Loader=yaml.SafeLoader)
        self.where = where
        self.lines: dict[Place, int] = {}
        self.repeated: list[GptError] = []

    def document(self) -> Document:
        content: Any = None
        seen = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                seen += 1
                if seen > 1:
                    raise self.refusal(event, "a second document", "a config is one document")
            elif isinstance(event, yaml.NodeEvent):
                content = self.node(event, ())
                if content is not None and not isinstance(content, dict):
                    raise self.refusal(event, "not a mapping", "write sections such as `model:` with keys below them")
        if self.repeated:
            raise together(self.repeated)
        return Document(content or {}, self.lines)

    def node(self, event: Any, place: Place) -> Any:
        if isinstance(event, yaml.AliasEvent):
            raise self.refusal(event, f"alias *{event.anchor}", "aliases are not allowed; write the value out")
        if getattr(event, "anchor", None):
            raise self.refusal(event, f"anchor &{event.anchor}", "anchors are not allowed; write the value out")
        if getattr(event, "tag", None):
            raise self.refusal(event, f"tag {shown(event.tag)}", "tags are not allowed")
        if isinstance(event, yaml.ScalarEvent):
            return None if event.style is None and event.value in _NULLS else event.value
        if len(place) >= MAX_DEPTH:
            raise self.refusal(event, "nested too deeply", f"at most {MAX_DEPTH} levels")
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(item := next(self.events), yaml.SequenceEndEvent):
                items.append(self.node(item, (*place, str(len(items)))))
            return items
        return self.mapping(place)

    def mapping(self, place: Place) -> dict[str, Any]:
        content: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.tag or event.anchor:
                raise self.refusal(event, "a key that is not plain text", "keys are names")
            if event.value == "<<":
                raise self.refusal(event, "merge key <<", "merges are not allowed; write the values out")
            key = (*place, event.value)
            line = event.start_mark.line + 1
            if event.value in content:
                name = ".".join(key)
                self.repeated.append(
                    UsageError(
                        f"{self.where}:{line}",
                        f"{shown(name)} stands a second time",
                        f"first on line {self.lines[key]}",
                    )
                )
            self.lines[key] = line
            content[event.value] = self.node(next(self.events), key)
        return content

    def refusal(self, event: Any, wrong: str, allowed: str) -> UsageError:
        return UsageError(f"{self.where}:{event.start_mark.line + 1}", wrong, allowed)
