"""Translate messages, English texts with values in them, to the language of the user.

The code writes all messages in English, as plain f-strings. The catalogue finds the entry that matches a finished
sentence, extracts the values, and inserts them into the translation. The same holds for messages of libraries.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import chain
from operator import itemgetter

LANGUAGES = ("en", "zh")
VARIABLE = "GPT_LANGUAGE"
# other names of languages than their codes
_NAMES = {"english": "en", "cn": "zh", "chinese": "zh", "中文": "zh", "简体中文": "zh", "汉语": "zh"}
_VALUE = re.compile(r"\{(\w*)(![tnlm])?\}")
# the text of an entry that begins with a label, such as advice: ...
_LABEL = re.compile(r"(\w+( \{\w+!n\})?: )+\{\w+!t\}")
_COUNTED = re.compile(r"[\d,.]+ [a-z]+")  # a number of things, which Chinese lists with another comma than clauses
_EDGE = 3  # characters
_NUMBER = re.compile(r"[+-]?([\d.,]*\d(e[+-]?\d+)?%?|inf|nan)")
_LONGEST = 10_000  # characters; nothing that people should read is longer


def language(environment: Mapping[str, str] = os.environ) -> str:
    """Return the code of the user's language, en or zh: from GPT_LANGUAGE, else from LANGUAGE or the locale, else en.

    As for GNU programs, LANGUAGE lists languages by preference and is ignored in the C locale. Languages that gpt does
    not know are skipped; the command `gpt` refuses an unknown GPT_LANGUAGE.
    """
    if (chosen := code_of(environment.get(VARIABLE, ""))) in LANGUAGES:
        return chosen
    locale = next(filter(None, map(environment.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    preferred = [] if locale in ("C", "POSIX") else environment.get("LANGUAGE", "").split(":")
    return next((code for code in map(code_of, [*preferred, locale]) if code in LANGUAGES), "en")


def code_of(locale: str) -> str:
    """Return the language code of a locale or of a language's name: zh for zh_CN.UTF-8, zh-CN and 中文."""
    code = locale.partition(".")[0].replace("-", "_").partition("_")[0].strip().lower()
    return _NAMES.get(code, code)


def say(text: str, spoken: str | None = None) -> str:
    """Translate a text to the language of the user, or to `spoken`; a text that the catalogue lacks stays English."""
    return chinese().say(text) if (spoken or language()) == "zh" else text


def labelled(text: str) -> str:
    """Translate a label, or a comma-separated list of names, and add a colon in the form of the user's language."""
    if language() != "zh":
        return f"{text}: "
    names = text.split(", ")
    said = "、".join(map(say, names))
    return f"{said}：" if len(names) > 1 or said != text else f"{text}: "


@lru_cache(maxsize=1)
def chinese() -> Catalogue:
    """Return the Chinese catalogue, read from all files of `zh/`; each translates the texts of one part of the code."""
    import tomllib  # English needs none

    folder = resources.files("gpt_cli.common.language") / "zh"
    pairs: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        pairs |= tomllib.loads(file.read_text("utf-8"))
    return Catalogue(pairs)


@dataclass(frozen=True)
class Message:
    """A catalogue entry with placeholders: `{name}` is any text, `{name!t}` a text to translate, `{name!n}` numbers.

    `{name!l}` is a list of names, whose commas and parentheses are translated; `{name!m}` is an amount, perhaps with k,
    M or G; `{s}` is the ending of a plural or nothing. The translation `said` has plain `{name}`.
    """

    between: tuple[str, ...]  # what precedes, separates and follows the values
    names: tuple[str, ...]
    kinds: tuple[str, ...]  # of the values: t, n, l, m or nothing
    said: str

    @classmethod
    def of(cls, text: str, said: str) -> Message:
        """Parse an entry of the catalogue: an English `text` with placeholders, and its translation `said`."""
        between, names, kinds = (_VALUE.split(text)[group::3] for group in range(3))
        return cls(tuple(between), tuple(names), tuple((kind or "").removeprefix("!") for kind in kinds), said)

    def values_of(self, text: str) -> dict[str, str] | None:
        """Return the value of each placeholder, by name, if the entry matches `text`; return None if it does not match.

        Each value but the last ends where the fixed text after it first occurs; no other division is tried.
        """
        first, *rest = self.between
        if not rest:
            return {} if text == first else None
        *middle, last = rest
        if not text.startswith(first) or not text.endswith(last):
            return None
        at, end = len(first), len(text) - len(last)
        values: list[str] = []  # of which several may be an {s}
        for literal in middle:
            start = text.find(literal, at, end) if at <= end else -1
            if start < 0:
                return None
            values.append(text[at:start])
            at = start + len(literal)
        if at > end:
            return None
        values.append(text[at:end])
        return dict(zip(self.names, values, strict=True)) if all(map(_fits, self.names, self.kinds, values)) else None


def _fits(name: str, kind: str, value: str) -> bool:
    """Return whether a value suits a placeholder, by the name and the kind (t, n, l or m) of the placeholder."""
    if name == "s":
        return value in ("", "s")
    if kind == "m":
        return _NUMBER.fullmatch(re.sub(" [kMG]$", "", value)) is not None
    return kind != "n" or all(map(_NUMBER.fullmatch, value.split(", ")))


def _in_ten_thousands(value: str) -> str:
    """Format an amount in Chinese, which counts in units of ten thousand: 0.82 M is 82 万个, 5.2 k is 5,200 个."""
    number, _, unit = value.partition(" ")
    if not unit:
        return f"{value} 个"
    amount = float(number.replace(",", "")) * {"k": 1e3, "M": 1e6, "G": 1e9}[unit]
    factor, name = next((f, name) for f, name in ((1e8, "亿个"), (1e4, "万个"), (1, "个")) if amount >= f)
    return f"{amount / factor:,.6g} {name}"


class Catalogue:
    """All entries of a language; of the entries that match a text, the one with the longest fixed text wins."""

    def __init__(self, pairs: Mapping[str, str]):
        self.pairs = dict(pairs)
        entries = [Message.of(text, said) for text, said in pairs.items()]
        self._labels = [Message.of(text, said) for text, said in pairs.items() if _LABEL.fullmatch(text)]
        entries.sort(key=lambda entry: -sum(map(len, entry.between)))
        # the entries with their ranks, by first or last characters, so that few are tried for each text
        self._ranked: dict[tuple[str, str], list[tuple[int, Message]]] = {}
        for rank, entry in enumerate(entries):
            first, last = entry.between[0][:_EDGE], entry.between[-1][-_EDGE:]
            edge = (first, "") if len(first) == _EDGE else ("", last if len(last) == _EDGE else "")
            self._ranked.setdefault(edge, []).append((rank, entry))

    def find(self, text: str) -> str | None:
        """Return the translation of a text; None if no entry matches."""
        if len(text) > _LONGEST:
            return None
        if text in self.pairs and "{" not in text:
            return self.pairs[text]
        entry, values = self.fit(text)
        return None if entry is None else self._with_values(entry, values)

    def fit(self, text: str) -> tuple[Message | None, dict[str, str]]:
        """Return the entry that matches a text, and the values of its placeholders; None and {} if no entry matches.

        For a text that begins with a label, such as "advice: ", entries that begin with a placeholder are skipped.
        """
        has_label = any(label.values_of(text) is not None for label in self._labels)
        edges = {(text[:_EDGE], ""), ("", text[-_EDGE:]), ("", "")}
        ranked = chain.from_iterable(self._ranked.get(edge, ()) for edge in edges)
        for _, entry in sorted(ranked, key=itemgetter(0)):
            if has_label and not entry.between[0]:
                continue
            if (values := entry.values_of(text)) is not None:
                return entry, values
        return None, {}

    def say(self, text: str) -> str:
        """Return the translation of a text, or the text itself if no entry matches."""
        said = self.find(text)
        return text if said is None else said

    def _with_values(self, entry: Message, values: Mapping[str, str]) -> str:
        said = dict(values)
        for name, kind in zip(entry.names, entry.kinds, strict=True):
            if kind == "t":
                said[name] = self._say_value(values[name])
            elif kind == "l":
                said[name] = re.sub(r" \| |, ", "、", re.sub(r" \((.+?)\)", self._say_kind, values[name]))
            elif kind == "m":
                said[name] = _in_ten_thousands(values[name])
        return _VALUE.sub(lambda match: said[match[1]], entry.said)

    def _say_kind(self, kind: re.Match[str]) -> str:
        """Translate the matched text in parentheses; a text that the catalogue lacks, as a name, is unchanged."""
        return kind[0] if (said := self.find(kind[1])) is None else f"（{said}）"

    def _say_value(self, value: str) -> str:
        """Translate a value that is a text of the catalogue, or a list of such texts; return other values unchanged."""
        if (translated := self.find(value)) is not None:
            return translated
        parts = [(part, self.find(part)) for part in value.split(", ")]
        is_list = any(translated is not None for _, translated in parts)
        comma = "、" if all(_COUNTED.fullmatch(part) for part, _ in parts) else "，"
        return comma.join(translated or part for part, translated in parts) if is_list else value
