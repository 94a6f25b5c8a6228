"""Patterns that cut text into words, as regular expressions of JavaScript. Needs no torch.

The two languages know different versions of Unicode, and even browsers differ. So every class of characters is written
out: the library tiktoken itself says which characters it matches. Groups and repetitions keep their meaning, or are
refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gpt_cli.errors import CheckpointError, shown
from gpt_cli.text.tokenizer import BytePairTokenizer, code_points

_LOOKBEHIND = ("(?<=", "(?<!")
_ASSERTIONS = ("(?=", "(?!", *_LOOKBEHIND)
_ANCHORS = {"^": "^", "$": "$", r"\A": "^", r"\z": "$"}
# one character, by its name or its kind; other escapes of a letter or digit, and \< and \>, are refused
_ESCAPE = re.compile(
    r"\\(?:[pP](?:\{[^{}]*\}|[A-Z])|x[0-9A-Fa-f]{2}|[xu]\{[0-9A-Fa-f]+\}|[dDsSwWtrnfv]|[^0-9A-Za-z<>])"
)
_REPEATED = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})[?+]?")


def javascript_pattern(pattern: str) -> str:
    """The source of an equal regular expression with the flag u; raises CheckpointError where none is certain to be."""
    reading = _Reading(pattern)
    part = reading.alternatives()
    if not reading.done:
        raise reading.refused("a bracket that closes nothing")
    if part.empty:
        raise reading.refused("a match of no characters")
    return part.source


@dataclass(frozen=True)
class _Part:
    """A part of a pattern in JavaScript; `empty` where it may match no characters."""

    source: str
    empty: bool


@dataclass
class _Reading:
    """Recursive descent: alternatives of sequences of repeated atoms."""

    pattern: str
    at: int = 0
    num_groups: int = 0
    num_behind: int = 0  # lookbehinds around what is read
    classes: dict[str, str] = field(default_factory=dict)

    @cached_property
    def every_character(self) -> str:
        return "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))

    @property
    def done(self) -> bool:
        return self.at == len(self.pattern)

    def refused(self, what: str) -> CheckpointError:
        sentence = f"a page cannot promise the same tokens: the pattern {shown(self.pattern)} has {what}"
        return CheckpointError("tokenizer", sentence, hint="--format hf")

    def taken(self, *texts: str) -> str:
        """The first of these texts that comes next, which is then behind; empty for none."""
        for text in texts:
            if self.pattern.startswith(text, self.at):
                self.at += len(text)
                return text
        return ""

    def alternatives(self, ignore_case: bool = False) -> _Part:
        parts = [self.sequence(ignore_case)]
        while self.taken("|"):
            parts.append(self.sequence(ignore_case))
        return _Part("|".join(part.source for part in parts), any(part.empty for part in parts))

    def sequence(self, ignore_case: bool) -> _Part:
        parts = list[_Part]()
        while not self.done and self.pattern[self.at] not in "|)":
            parts.append(self.repeated(ignore_case))
        return _Part("".join(part.source for part in parts), all(part.empty for part in parts))

    def repeated(self, ignore_case: bool) -> _Part:
        begin = self.at
        part = self.atom(ignore_case)
        times = _REPEATED.match(self.pattern, self.at)
        if times is None:
            return part
        self.at = times.end()
        if part.empty or _REPEATED.match(self.pattern, self.at):
            raise self.refused(f"a repetition of what may be empty, {shown(self.pattern[begin : self.at])}")
        count = times[0]
        empty = count[0] in "*?" or count.startswith(("{0,", "{0}"))
        if len(count) > 1 and count[-1] == "+":
            return _Part(self.atomic(part.source + count[:-1]), empty)
        return _Part(part.source + count, empty)

    def atomic(self, source: str) -> str:
        """What matches once and is never tried again: JavaScript looks ahead once only, too."""
        if self.num_behind:  # JavaScript reads it backwards, the reference before its group
            raise self.refused("a lookbehind with what is never tried again")
        self.num_groups += 1
        return rf"(?:(?=(?<g{self.num_groups}>{source}))\k<g{self.num_groups}>)"

    def atom(self, ignore_case: bool) -> _Part:
        if self.pattern.startswith("(", self.at):
            return self.group(ignore_case)
        if anchor := self.taken(*_ANCHORS):
            return _Part(_ANCHORS[anchor], empty=True)
        return _Part(self.one_of(self.single(), ignore_case), empty=False)

    def group(self, ignore_case: bool) -> _Part:
        begin = self.at
        kind = self.taken(*_ASSERTIONS, "(?:", "(?i:", "(?>", "(")
        if kind == "(" and self.taken("?", "*"):
            raise self.refused(f"the group {shown(self.pattern[begin : begin + 4])}")
        self.num_behind += kind in _LOOKBEHIND
        inside = self.alternatives(ignore_case or kind == "(?i:")
        self.num_behind -= kind in _LOOKBEHIND
        if not self.taken(")"):
            raise self.refused("a group that never closes")
        if kind in _ASSERTIONS:
            return _Part(f"{kind}{inside.source})", empty=True)
        return _Part(self.atomic(inside.source) if kind == "(?>" else f"(?:{inside.source})", inside.empty)

    def single(self) -> str:
        """What stands next for one character: itself, an escape, a class."""
        begin = self.at
        if self.taken("\\"):
            escape = _ESCAPE.match(self.pattern, begin)
            if escape is None:
                raise self.refused(f"the escape {shown(self.pattern[begin : begin + 2])}")
            self.at = escape.end()
        elif self.taken("["):
            self.at = self._end_of_class(begin)
        elif self.taken(*"*+?{}]"):
            raise self.refused(f"{shown(self.pattern[begin])} in an unusual place")
        else:
            self.at += 1
        return self.pattern[begin : self.at]

    def _end_of_class(self, begin: int) -> int:
        """Where the class that begins here is over; classes may hold others."""
        depth, at = 0, begin
        while at < len(self.pattern):
            letter = self.pattern[at]
            at += 2 if letter == "\\" else 1
            if letter == "[":
                depth += 1
                at += self.pattern.startswith("^", at)
                at += self.pattern.startswith("]", at)  # the first one is a character
            elif letter == "]":
                depth -= 1
                if depth == 0:
                    return at
        raise self.refused("a class that never closes")

    def one_of(self, single: str, ignore_case: bool) -> str:
        """The same characters in JavaScript."""
        if len(single) == 1 and single != "." and not ignore_case:
            return _letter(ord(single))
        asked = f"(?i:{single})" if ignore_case else single
        if asked not in self.classes:
            self.classes[asked] = _written(self._members(asked))
        return self.classes[asked]

    def _members(self, single: str) -> np.ndarray:
        """The code points that a pattern of one character matches, as the library tiktoken sees it: ascending."""
        alone = BytePairTokenizer("bpe", single, [bytes([byte]) for byte in range(256)])
        found = alone.encoding.encode_to_numpy(self.every_character)
        return code_points(found.astype(np.uint8).tobytes().decode("utf-8")).astype(np.int64)


def _written(points: np.ndarray) -> str:
    """One of these code points, in the syntax of JavaScript."""
    firsts = points[np.diff(points, prepend=-2) != 1].tolist()  # of runs of neighbours
    lasts = points[np.diff(points, append=-2) != 1].tolist()
    runs = zip(map(_letter, firsts), map(_letter, lasts), strict=True)
    return "[" + "".join(one if one == last else f"{one}-{last}" for one, last in runs) + "]"


def _letter(point: int) -> str:
    return chr(point) if chr(point).isascii() and chr(point).isalnum() else f"\\u{{{point:X}}}"
