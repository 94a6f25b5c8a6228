"""Rewrite marked fields in messages: ‹top_k=5› becomes --top-k 5 on the command line, and top_k=5 in Python.

A marked name with a dot is a setting: ‹model.bias=true› becomes --set model.bias=true, or settings=["model.bias=true"].
Whole commands, such as gpt train --data my.txt, have no marks and are the same for both. Needs no torch.
"""

import json
import re
import shlex
from collections.abc import Mapping

_MARK = re.compile(r"‹([a-z_]+(?:\.\w+)?)(?:=([^›]*))?›")
_MARKS = re.compile(rf"{_MARK.pattern}(?: {_MARK.pattern})*")
_FLAGS = {"settings": "--set", "form": "--format"}  # flags with other names than their fields
# values that Python writes without quotes
_AS_IT_IS = re.compile(r"True|False|[A-Z][A-Z|/.,]*|\.\.\.|-?\d[\d_]*(\.\d+)?(e[+-]?\d+)?")
_OF_STDIN = re.compile(r"[,;] - [A-Za-z ]+ std(in|out)")
_OF_A_TERMINAL = re.compile(r"\bstd(in|out)\b|(the|On a|no) terminal|Ctrl-C|‹out=-›|^Print a ")


def as_flags(text: str, names: Mapping[str, str] | None = None, command: str = "") -> str:
    """Replace marks such as ‹top_k=5› by flags such as --top-k 5; `names` maps fields to flags with other names.

    A positional argument has no flag: if `names` maps path to PATH, ‹path=x› becomes `command` followed by x.
    """

    def flag(mark: re.Match[str]) -> str:
        name, value = mark.groups()
        if "." in name:
            return f"--set {name}" + ("" if value is None else f"={shlex.quote(value)}")
        flag = (names or {}).get(name) or _FLAGS.get(name) or f"--{name.replace('_', '-')}"
        if value is None or value == "True":
            return flag
        if value == "False":
            return flag.replace("--", "--no-")
        return f"{command if flag.isupper() else flag} {shlex.quote(value)}"

    return _MARK.sub(flag, text)


def as_keywords(text: str) -> str:
    """Replace marks such as ‹top_k=5› by Python arguments, such as top_k=5; join neighbouring marks by commas."""

    def keywords(marks: re.Match[str]) -> str:
        values: dict[str, list[str]] = {}
        for name, value in (mark.groups() for mark in _MARK.finditer(marks[0])):
            is_setting = "." in name and value is not None
            setting = f"{name}={value}" if is_setting else value
            values.setdefault("settings" if is_setting else name, []).extend(() if setting is None else [setting])
        return ", ".join(_keyword(*one) for one in values.items())

    return _MARKS.sub(keywords, _OF_STDIN.sub("", text))


def _keyword(name: str, values: list[str]) -> str:
    if not values:
        return "as_dict()" if name == "json" else name
    if name == "settings" or len(values) > 1:
        return f"{name}={json.dumps(values, ensure_ascii=False)}"
    return f"{name}={values[0] if _AS_IT_IS.fullmatch(values[0]) else json.dumps(values[0], ensure_ascii=False)}"


def described(text: str) -> str:
    """Rewrite a paragraph of CLI help for Python callers; drop sentences that only concern the terminal."""
    sentences = re.split(r"(?<=\.) (?=[A-Z])", text.replace("Repeatable.", "One, or a list."))
    sentences = [each for each in sentences if not _OF_A_TERMINAL.search(_OF_STDIN.sub("", each))]
    return "" if all(each.startswith("Default: ") for each in sentences) else as_keywords(" ".join(sentences))
