"""The texts that the code hands to the user, read from its source: errors, hints, notices, advice, progress."""

import ast
import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, product
from typing import TypeVar

import pytest
import typer._click.core as click

from gpt_cli import errors
from gpt_cli.cli import console
from gpt_cli.cli.app import build
from gpt_cli.cli.help import HelpContext, TranslatedHelp
from gpt_cli.common.language import Catalogue, chinese, say
from gpt_cli.common.spelling import as_flags
from gpt_cli.config.settings_reference import allowed_values, is_none_of, setting_schemas
from gpt_cli.errors import GptError
from support.package import nodes, trees

# which arguments of a call the user reads: places and keywords
READ: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "notice": ((0,), ()),
    "_notice": ((0,), ()),
    "warn": ((0,), ()),
    "_warn": ((0,), ()),
    "counting": ((0,), ()),
    "working": ((0,), ()),
    "say": ((0,), ()),
    "BadParameter": ((0,), ()),
    "error": ((0,), ("hint",)),
    "Misfit": ((1, 2), ("sentence", "hint")),
    "Advice": ((1, 2), ("sentence", "flags")),
    "Diverged": ((1,), ()),
    "Note": ((1,), ()),
    "Step": ((), ("title",)),
    "Explanation": ((0,), ()),
}
Node = TypeVar("Node", bound=ast.AST)
_ERROR = ((1,), ("sentence", "hint"))
_VALUE = "{}"
_PROSE = re.compile("[A-Za-z,;:]+ [A-Za-z]")  # two words
# what commands said in this process that has no Chinese; the end of a test run reports it
HEARD = set[str]()
# what one types is the same in every language: gpt, a command, perhaps its argument, then flags
_COMMAND = re.compile(r"(gpt( [a-z][a-z-]*){1,2} ([^\s-]\S* )?)?(--[a-z-]+( ('[^']*'|(?!--)\S+))?( |$))+")
# what a person gave, and whole commands
QUOTED_OR_TYPED = re.compile(r"\"[^\"]*\"|\b(?:gpt|hf|pip|ocrmypdf|llama-gguf-split) [^;,)]*")


@dataclass(frozen=True)
class Message:
    """A text in the code, with `{}` for each value, and where it is; `whole` spells out values that are texts too."""

    text: str
    where: str
    whole: frozenset[str]
    marked: str  # the text as it stands in the source, with fields in marks


def skeleton(text: str) -> str:
    """A text of the catalogue with `{}` for each value."""
    return re.sub(r"\{[^{}]*\}", _VALUE, text)


def half_said(text: str, catalogue: Catalogue) -> Iterator[str]:
    """The parts of a finished text that the catalogue lacks: all of it, or the words of a value.

    Names, numbers and commands are the same in every language; what libraries give as a `reason` need not be known.
    """
    if not _PROSE.search(text) or _COMMAND.fullmatch(text):
        return
    entry, values = catalogue.fit(text)
    if entry is None:
        yield text
        return
    for name, kind in zip(entry.names, entry.kinds, strict=True):
        value = values[name]
        if kind == "t" and name != "reason" and not value.startswith('"'):
            for part in [value] if catalogue.find(value) else value.split(", "):
                yield from half_said(part, catalogue)


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Add what is said meanwhile, and what the catalogue of Chinese lacks of it, to HEARD."""
    said: list[str] = []
    lines = GptError.lines

    def noted_lines(error: GptError, spell: Callable[[str], str] = as_flags) -> list[str]:
        for problem in (error, *error.others):
            said.extend(spell(text) for text in (problem.sentence, problem.hint) if text)
        return lines(error, spell)

    def noted(text: str) -> str:
        said.append(text)
        return say(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GptError, "lines", noted_lines)
        patch.setattr(console, "say", noted)
        yield
    HEARD.update(part for text in dict.fromkeys(said) for part in half_said(text, chinese()))


@cache
def messages() -> list[Message]:
    """Every text that the source hands to one of these calls, or yields as a legend, as far as the source alone says."""
    found: list[Message] = []
    for path, tree in trees().items():
        constants = _assigned(tree)
        for scope in nodes()[path]:
            if not isinstance(scope, ast.FunctionDef | ast.Module):
                continue
            known = constants | _assigned(scope)
            lines = _yields(scope) if getattr(scope, "name", "") == "legend" else ()  # of a Finding
            for argument in chain(lines, *map(_read_arguments, _of_scope(scope, ast.Call))):
                for marked, whole in _texts(argument, known).items():
                    if not _is_value(text := _in_flags(marked)):
                        where = f"{path}:{argument.lineno}"
                        found.append(Message(text, where, frozenset(map(_in_flags, whole)), marked))
    return found


def _in_flags(text: str) -> str:
    """A text of the source as the command line writes it."""
    return as_flags(text.replace(_VALUE, "_VALUE_")).replace("_VALUE_", _VALUE)


@cache
def calls() -> list[tuple[str, list[ast.expr]]]:
    """Every call of the package with arguments in places: the name of the function, and these."""
    found = (node for node in chain.from_iterable(nodes().values()) if isinstance(node, ast.Call) and node.args)
    return [(getattr(node.func, "id", ""), node.args) for node in found]


def places() -> Iterator[str]:
    """What errors are about, where that is a word of English: a corpus, but no flag, key, command or variable."""
    for name, (where, *more) in calls():
        text = where.value if isinstance(where, ast.Constant) and hasattr(errors, name) and more else None
        if isinstance(text, str) and text.isalpha() and text.islower():
            yield text


def nouns() -> Iterator[str]:
    """What the code counts: one word after a number, such as `{} heads`."""
    for name, (*_, noun) in calls():
        if name == "counted" and isinstance(noun, ast.Constant) and str(noun.value).isalpha():
            yield f"{noun.value}s"


def refusals() -> Iterator[str]:
    """What each setting says of a value that it does not take, in a file and, without null, after `--set`."""
    for key, details in setting_schemas().items():
        words = allowed_values(key, details)
        yield f'"x" {is_none_of(words)}'
        if others := [word for word in words if word != "null"]:
            yield f'"x" {is_none_of(others)}'


def _is_value(text: str) -> bool:
    """Whether a text is nothing but values, with at most two words between several; tests hear what comes of it."""
    num_words = len(re.findall("[A-Za-z]+", text))
    return not num_words or (num_words <= 2 and text.count(_VALUE) > 1)


def _of_scope(scope: ast.AST, kind: type[Node]) -> Iterator[Node]:
    """The nodes of a kind, such as calls, of a function or module, without those of the functions in it."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, kind):
            yield node
        if not isinstance(node, ast.FunctionDef):
            yield from _of_scope(node, kind)


def _yields(scope: ast.AST) -> Iterator[ast.expr]:
    yield from (node.value for node in _of_scope(scope, ast.Yield) if node.value)


def _read_arguments(call: ast.Call) -> Iterator[ast.expr]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    is_error = name.endswith(("Error", "Failure", "LostProcess")) and name[0].isupper()
    places, keywords = READ.get(name) or (_ERROR if is_error and hasattr(errors, name) else ((), ()))
    yield from (call.args[place] for place in places if place < len(call.args))
    yield from (keyword.value for keyword in call.keywords if keyword.arg in keywords)


def _assigned(scope: ast.AST) -> dict[str, list[ast.expr]]:
    """The expressions that a scope gives to each name of its own."""
    found: dict[str, list[ast.expr]] = {}

    def look(node: ast.AST) -> None:
        for below in ast.iter_child_nodes(node):
            if isinstance(below, ast.Assign):
                for target in below.targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, []).append(below.value)
                    elif isinstance(target, ast.Tuple) and isinstance(below.value, ast.Tuple):
                        for name, value in zip(target.elts, below.value.elts, strict=False):
                            if isinstance(name, ast.Name):
                                found.setdefault(name.id, []).append(value)
            if not isinstance(below, ast.FunctionDef):
                look(below)

    look(scope)
    return found


def _texts(node: ast.expr, known: dict[str, list[ast.expr]]) -> dict[str, set[str]]:
    """What an expression can be, with `{}` for each value; for each text, what it is with the values spelled out."""
    if isinstance(node, ast.Constant):
        return {node.value: {node.value}} if isinstance(node.value, str) else {}
    if isinstance(node, ast.JoinedStr):
        parts = ["".join(part) for part in product(*(_choices(part, known) for part in node.values))]
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else _VALUE for part in node.values)
        return {text: set(parts)}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = (_texts(side, known) or {_VALUE: {_VALUE}} for side in (node.left, node.right))
        pairs = list(product(*(side.items() for side in sides)))
        return {one + two: set(map("".join, product(ones, twos))) for (one, ones), (two, twos) in pairs}
    if isinstance(node, ast.IfExp):
        return _texts(node.body, known) | _texts(node.orelse, known)
    if isinstance(node, ast.BoolOp):
        return _union(_texts(value, known) for value in node.values)
    if isinstance(node, ast.Name):
        return _union(_texts(value, _without(known, node.id)) for value in known.get(node.id, []))
    return {}


def _choices(part: ast.expr, known: dict[str, list[ast.expr]]) -> set[str]:
    """What a part of an f-string can be: the texts that a name or a condition stands for, else `{}`."""
    if isinstance(part, ast.Constant):
        return {str(part.value)}
    assert isinstance(part, ast.FormattedValue)
    return _spelled_out(part.value, known)


def _spelled_out(node: ast.expr, known: dict[str, list[ast.expr]]) -> set[str]:
    if isinstance(node, ast.IfExp):
        return _spelled_out(node.body, known) | _spelled_out(node.orelse, known)
    if isinstance(node, ast.Name) and node.id in known:
        return set().union(*(_spelled_out(value, _without(known, node.id)) for value in known[node.id]))
    is_text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    return set().union(*_texts(node, known).values()) if is_text else {_VALUE}


def _union(found: Iterable[dict[str, set[str]]]) -> dict[str, set[str]]:
    return {text: whole for texts in found for text, whole in texts.items()}


def _without(known: dict[str, list[ast.expr]], name: str) -> dict[str, list[ast.expr]]:
    return {other: values for other, values in known.items() if other != name}


def missing() -> Iterator[str]:
    """Lines of the catalogue to fill in, each below the place that needs it: what the source and the help say."""
    known = {skeleton(text) for text in chinese().pairs}
    found = {
        message.text: message.where
        for message in messages()
        if message.text not in known and any(_half_said_of_source(whole) for whole in message.whole - known)
    }
    meanings = {
        details["description"]: f"what {key} means, in settings.toml" for key, details in setting_schemas().items()
    }
    found |= {text: where for text, where in meanings.items() if text not in chinese().pairs}
    found |= {text: "a setting that refuses a value" for text in refusals() if any(half_said(text, chinese()))}
    found |= dict.fromkeys(set(places()) - {"stdin"} - chinese().pairs.keys(), "the place of an error")
    found |= {f"{{}} {noun}": "a number of things" for noun in nouns() if not chinese().find(f"7 {noun}")}
    found |= {
        text: "help" for text in sorted(help_texts() - chinese().pairs.keys()) if not text.startswith("Example: ")
    }
    for text, where in found.items():
        yield f'# {where}\n{json.dumps(text, ensure_ascii=False)} = ""'


def _half_said_of_source(text: str) -> bool:
    """Whether Chinese lacks some of a text of the source, with a number for each value."""
    return any(half_said(text.replace("{}", "7"), chinese()))


def help_texts() -> set[str]:
    """All paragraphs, headings and descriptions of flags that help prints."""
    found: set[str] = {"Usage: "}
    _collect(build(), "gpt", found)
    return found


def _collect(command: object, name: str, found: set[str]) -> None:
    class Listening(TranslatedHelp):
        def write_heading(self, heading: str) -> None:
            found.add(heading)

        def write_text(self, text: str) -> None:
            found.update(" ".join(one.split()) for one in text.split("\n\n") if one.strip())

        def write_dl(self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
            # what click adds to a description is a text of its own
            found.update(part for _, does in rows if does for part in does.split("  "))

    assert isinstance(command, click.Command)
    command.format_help(HelpContext(command, info_name=name), Listening())
    for below in getattr(command, "commands", {}).values():
        _collect(below, f"{name} {below.name}", found)


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in missing()) or "the Chinese catalogue lacks nothing\n")
