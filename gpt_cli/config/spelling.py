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

_WORD = r"(?:'[^']*'|\"[^\"]*\"|[^\s'\";,.?)]|[;,.?](?=\S))+"
# what a person gave, a whole command, or flags with the word behind each, which may be its value
_TYPED = re.compile(
    rf"\"[^\"]*\"|\b(?:gpt|hf|pip) [a-z-]+(?: {_WORD})*"
    rf"|(?P<settings>--set {_WORD}(?: --set {_WORD})*)|(?P<texts>--data {_WORD}(?: --data {_WORD})+)"
    rf"|(?<![\w-])--(?P<name>[a-z]+(?:-[a-z]+)*)\b(?P<value> (?!--){_WORD})?"
)
_PLACEHOLDER = re.compile(r"[A-Z][A-Z|/.,]*")
_NUMBER = re.compile(r"-?\d[\d_]*(\.\d+)?(e[+-]?\d+)?")
_COUNTS = re.compile(r"\b(int|float)\b")  # the type of a field
# a number, a path, a name with digits, what is in quotes
_VALUE = re.compile(r"-|.*[\d./:='\"_].*")
# what only a command can do -> what a function says instead
_PHRASES = {
    r"[,;] - [A-Za-z ]+ std(in|out)": "",
    r", (--prompt-file( FILE)?) or a pipe": r" or \1",
    r"redirect an explanation with --format html > FILE": "as_page() of an explanation is one of HTML",
    r"the terminal may send another encoding.*": "decode the text as it is encoded",
    r"--json prints .* to stdout": "as_dict() has the figures",
    r"--json": "as_dict()",
    r"\bsame command": "same call",
    r"Repeatable\.": "One, or a list.",
    "`gpt data list`": "gpt_cli.data.list()",
    "`gpt runs`": "gpt_cli.runs()",
    "as gpt train --data names it": "as data of gpt_cli.train names it",
}
_OF_A_COMMAND = re.compile(r"stdout contains|(in the|On a|no) terminal|Ctrl-C (saves|again)|What --out -|^Print a")


def in_keywords(text: str, request: type[Request], bare: str = "=") -> str:
    """A text with `top_k=5` for `--top-k 5`; whole commands stay what they are. `bare` follows a name without value."""
    for typed, instead in _PHRASES.items():
        text = re.sub(typed, instead, text)

    def written(found: re.Match[str]) -> str:
        after, value, name = found.string[found.end() :], found["value"] or "", found["name"]
        if found["settings"]:
            values = shlex.split(found[0])[1::2]  # keys alone are names, as in: raise them
            pairs = any("=" in each for each in values)
            said, value = f"settings={json.dumps(values, ensure_ascii=False)}" if pairs else ", ".join(values), ""
        elif found["texts"]:
            said, value = f"data={json.dumps(shlex.split(found[0])[1::2], ensure_ascii=False)}", ""
        elif name is None:
            return found[0]
        else:
            keyword, kind = _field_of(name, request)
            if kind is bool:
                said = f"{keyword}={not name.startswith('no-')}"
            elif (literal := _literal(value[1:], after, str(kind))) is not None:
                said, value = f"{keyword}={literal}", ""
            else:
                said = keyword + bare
        return said + (value or "," * after.startswith(" --"))

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
    """Errors name the keywords of a function."""
    try:
        yield
    except GptError as error:
        name_keywords(error, request, function)
        raise


def name_keywords(error: GptError, request: type[Request], function: str) -> None:
    """Write an error, and those that it carries, in keywords; a traceback shows them all, and their hints."""
    fields = flags_of(request)
    places = {spelling: name for name, _, flag in fields for spelling in (flag_of(name, flag), spelled_as_flag(name))}
    for each in (problems := [error, *error.others]):
        opens, after = each.opens_with_its_place(each.sentence), each.sentence.removeprefix(each.where)
        where = function if re.fullmatch(r"gpt [a-z -]+", each.where) else in_keywords(each.where, request, bare="")
        each.where = places.get(each.where) or where
        sentence = in_keywords(after if opens else each.sentence, request)
        each.sentence = each.where + sentence if opens else sentence
        each.hint = each.hint and in_keywords(each.hint, request)
        each.args = (each.where, each.sentence)  # which repr shows
    hints = dict.fromkeys(f"hint: {each.hint}" for each in problems if each.hint)
    error.__notes__ = [*map(str, problems[1:]), *hints]


def _literal(word: str, after: str, kind: str) -> str | None:
    """The word behind a flag as Python writes its value; None where it belongs to the sentence around the flag."""
    if _PLACEHOLDER.fullmatch(word):
        return word
    counts, ends = _COUNTS.search(kind), after[:1] in ("", ";", ",", ")")
    if not word or not (_VALUE.fullmatch(word) or f"'{word}'" in kind or (ends and not counts)):
        return None
    value = "".join(shlex.split(word))
    return value if counts and _NUMBER.fullmatch(value) else json.dumps(value, ensure_ascii=False)


def _field_of(name: str, request: type[Request]) -> tuple[str, Any]:
    """The keyword that a flag without its dashes means, and the type of its field, if the request has it."""
    for each, field, flag in flags_of(request):
        if flag_of(each, flag).removeprefix("--") in (name, name.removeprefix("no-")):
            return each, field.annotation
    keyword = "path" if name == "run" and "path" in request.model_fields else name.replace("-", "_")
    return keyword, getattr(request.model_fields.get(keyword), "annotation", None)
