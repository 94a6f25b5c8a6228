"""What the command line says, for those who call a function of Python: keywords instead of flags. Needs no torch."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpt_cli.config.request import Request, flag_of, flags_of
from gpt_cli.errors import GptError

_WORD = r"(?:'[^']*'|\"[^\"]*\"|[^\s'\";,.)]|[;,.](?=\S))+"
# what a person gave, a whole command, or flags with the word behind each, which may be its value
_TYPED = re.compile(
    rf"\"[^\"]*\"|\b(?:gpt|hf|pip) [a-z-]+(?: {_WORD})*"
    rf"|(?P<settings>--set {_WORD}(?: --set {_WORD})*)"
    rf"|(?<![\w-])--(?P<name>[a-z]+(?:-[a-z]+)*)\b(?P<value> (?!--){_WORD})?"
)
_PLACEHOLDER = re.compile(r"[A-Z][A-Z|/.,]*")
_NUMBER = re.compile(r"-?\d[\d_]*(\.\d+)?(e[+-]?\d+)?")
_COUNTS = re.compile(r"\b(int|float)\b")  # the type of a field
# a number, a path, a name with digits, what is in quotes
_VALUE = re.compile(r"-|.*[\d./:='\"_].*")
# what only a command can do, and what a function says instead
_PHRASES = {
    ", - for stdin": "",
    "; - reads it from stdin": "",
    "; - writes JSON or CSV to stdout": "",
    ", --prompt-file FILE or a pipe": " or --prompt-file FILE",
    ", --prompt-file or a pipe": " or --prompt-file",
    "redirect an explanation with --format html > FILE": "as_page() of an explanation is one of HTML",
    " prints JSON to stdout": " has the figures",
    " prints the figures to stdout": " has the figures",
    "the terminal may send another encoding, such as GBK; set it to UTF-8": "decode the text as it is encoded",
    "Repeatable.": "One, or a list.",
    "he same command": "he same call",
    "--json": "as_dict()",
}
_OF_A_COMMAND = re.compile(
    r"stdout contains|(in the|On a|no) terminal|Ctrl-C (saves|again)|What --out -|^Print a single"
)


def in_keywords(text: str, request: type[Request], bare: str = "=") -> str:
    """A text with `top_k=5` for `--top-k 5`; whole commands stay what they are. `bare` follows a name without value."""
    for typed, instead in _PHRASES.items():
        text = text.replace(typed, instead)

    def written(found: re.Match[str]) -> str:
        after, value = found.string[found.end() :], found["value"] or ""
        if found["settings"]:
            values = shlex.split(found[0])[1::2]  # keys alone are names, as in: raise them
            pairs = any("=" in each for each in values)
            said = f"settings={json.dumps(values, ensure_ascii=False)}" if pairs else ", ".join(values)
        elif found["name"]:
            name, field = _field_of(found["name"], request)
            kind = "" if field is None else str(field.annotation)
            if field is not None and field.annotation is bool:
                said = f"{name}={not found['name'].startswith('no-')}"
            elif _is_value(value[1:], after, kind):
                said, value = f"{name}={_literal(value[1:], kind)}", ""
            else:
                said = name + bare
            if value:
                return said + value
        else:
            return found[0]
        return said + "," * after.startswith(" --")

    return re.sub("=(True)? cannot be combined", " cannot be combined", _TYPED.sub(written, text))


def spelled_as_flag(name: str) -> str:
    """A field for sentences that become keywords."""
    return "--" + name.replace("_", "-")


def described(text: str, request: type[Request]) -> str:
    """A paragraph of help in keywords, without the sentences that concern the command line alone."""
    sentences = re.split(r"(?<=\.) (?=[A-Z])", text)
    kept = [in_keywords(each, request, bare="") for each in sentences if not _OF_A_COMMAND.search(each)]
    return "" if all(each.startswith("Default: ") for each in kept) else " ".join(kept)


@contextmanager
def keywords_named(request: type[Request], function: str) -> Iterator[None]:
    """Errors name the keywords of a function, and a traceback shows all that they say."""
    try:
        yield
    except GptError as error:
        problems = spelled(error, request, function)
        for line in map(str, problems[1:]):
            error.add_note(line)
        for hint in dict.fromkeys(each.hint for each in problems if each.hint):
            error.add_note(f"hint: {hint}")
        raise


def spelled(error: GptError, request: type[Request], function: str) -> list[GptError]:
    """Write an error, and those that it carries, in keywords; returns them all."""
    fields = flags_of(request)
    places = {spelling: name for name, _, flag in fields for spelling in (flag_of(name, flag), spelled_as_flag(name))}

    def place(where: str) -> str:
        if re.fullmatch(r"gpt [a-z -]+", where):
            return function
        return places.get(where) or in_keywords(where, request, bare="")

    for each in (problems := [error, *error.others]):
        opens, after = each.opens_with_its_place(each.sentence), each.sentence.removeprefix(each.where)
        sentence = in_keywords(after if opens else each.sentence, request)
        each.where, each.about = place(each.where), each.about and place(each.about)
        each.sentence = each.where + sentence if opens else sentence
        each.hint = each.hint and in_keywords(each.hint, request)
    return problems


def _is_value(word: str, after: str, kind: str) -> bool:
    """Whether the word behind a flag is its value, and not one of the sentence around it."""
    ends = after[:1] in ("", ";", ",", ")") and not _COUNTS.search(kind)
    return bool(word) and bool(ends or f"'{word}'" in kind or _VALUE.fullmatch(word) or _PLACEHOLDER.fullmatch(word))


def _literal(word: str, kind: str) -> str:
    """A value as Python writes it; what stands for one stays."""
    value = "".join(shlex.split(word))
    is_bare = _PLACEHOLDER.fullmatch(word) or (_COUNTS.search(kind) and _NUMBER.fullmatch(value))
    return value if is_bare else json.dumps(value, ensure_ascii=False)


def _field_of(name: str, request: type[Request]) -> tuple[str, Any]:
    """The field that a flag means, given without its dashes: of this request, else of another command."""
    if name == "run" and name not in request.model_fields and "path" in request.model_fields:
        return "path", request.model_fields["path"]
    for kind in (request, *_below(Request)):
        for each, field, flag in flags_of(kind):
            if flag_of(each, flag).removeprefix("--") in (name, name.removeprefix("no-")):
                return each, field
    return name.replace("-", "_"), None


def _below(kind: type[Request]) -> Iterator[type[Request]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)
