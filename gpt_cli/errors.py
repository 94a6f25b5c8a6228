"""Errors that a user can correct: one class for each exit code, all printed in the same format."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence

from gpt_cli.common.language import labelled, language, say
from gpt_cli.common.spelling import as_flags, as_keywords

EXIT_CODE_STDOUT_CLOSED = 141
# control characters, except tabs and newlines
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class GptError(Exception):
    """An error that a user can correct, printed as `error: where: sentence`, with a line `hint: ...` if it has a hint.

    `where` is the flag, the key, the file and line, or the object that the sentence is about; the sentence says what is
    wrong and what would be right. A raised error may have `others`, so that the user sees all problems at once. A hint
    that applies to only some of the errors begins with their `about` (default: `where`), as in `hint: FILE: ...`.
    """

    exit_code = 1  # for a bug in gpt

    def __init__(self, where: str, sentence: str, *, hint: str | None = None, about: str | None = None):
        super().__init__(where, sentence)
        self.where, self.sentence, self.hint, self.about = where, sentence, hint, about
        self.others: list[GptError] = []

    def __str__(self) -> str:
        return self._said(as_keywords, str, "{}: ".format)

    def lines(self, spell: Callable[[str], str] = as_flags) -> list[str]:
        """Return the lines for stderr in the user's language: an `error:` line for each problem, then each hint once.

        Messages write fields of a request as ‹top_k=5›. `spell` turns these into flags (the default) or keywords.
        """
        problems = [self, *self.others]
        hints: dict[str, list[str]] = {}
        for problem in problems:
            if problem.hint:
                hints.setdefault(problem.hint, []).append(spell(problem.about or problem.where))
        errors = [f"error: {problem._said(spell, say, labelled)}" for problem in problems]
        comma, colon = ("、", "：") if language() == "zh" else (", ", ": ")
        lines = errors + [
            # a hint that all problems share needs no name
            f"hint: {comma.join(map(say, about)) + colon if len(about) < len(problems) else ''}{say(spell(hint))}"
            for hint, about in hints.items()
        ]
        return [inert(line).replace("\n", "\\n") for line in lines]  # commands in hints contain names as they are

    def _said(self, spell: Callable[[str], str], say: Callable[[str], str], labelled: Callable[[str], str]) -> str:
        """Return the translated sentence, after `where` and a colon if it lacks `where`; `spell` is as in `lines`."""
        where, sentence = spell(self.where), say(spell(self.sentence))
        return sentence if sentence.startswith(f"{where} ") else f"{labelled(where)}{sentence}"


class UsageError(GptError):
    """Error for a wrong flag or setting."""

    exit_code = 2


class DataError(GptError):
    """Error for a wrong corpus, token file or prompt."""

    exit_code = 3


class CheckpointError(GptError):
    """Error for a checkpoint or run that is missing, damaged, too new, not from gpt, or unsuitable for the command."""

    exit_code = 4


class EnvironmentFailure(GptError):  # noqa: N818 - EnvironmentError is a name of Python
    """Error for a fault of the machine: a full disk, no permission, a missing device, too little memory, no network."""

    exit_code = 5


class DivergedError(GptError):
    """Error for a loss or gradient that is not finite."""

    exit_code = 6


def together(errors: Sequence[GptError]) -> GptError:
    """Return the first of several errors, with the rest as its `others`, so that all are printed."""
    first, *others = errors
    first.others = others
    return first


@contextlib.contextmanager
def collecting(wrong: list[GptError]) -> Iterator[None]:
    """Catch a GptError raised in the context, and append the error and its `others` to the list `wrong`."""
    try:
        yield
    except GptError as error:
        wrong += (error, *error.others)
        error.others = []


@contextlib.contextmanager
def blaming(where: str, instead_of: str | None = None) -> Iterator[None]:
    """Set `where` in a DataError raised in the context; with `instead_of`, only if the error names `instead_of`."""
    try:
        yield
    except DataError as error:
        error.where = where if instead_of in (None, error.where) else error.where
        raise


@contextlib.contextmanager
def keywords_named() -> Iterator[None]:
    """Rewrite a GptError raised in the context, so that it names keywords of Python functions instead of flags."""
    try:
        yield
    except GptError as error:
        name_keywords(error)
        raise


def name_keywords(error: GptError) -> None:
    """Rewrite an error and its `others` to name Python keywords, not flags; add `others` and hints to its traceback."""
    for each in (problems := [error, *error.others]):
        each.where, each.sentence = as_keywords(each.where), as_keywords(each.sentence)
        each.hint = each.hint and as_keywords(each.hint)
        each.args = (each.where, each.sentence)  # which repr shows
    hints = dict.fromkeys(f"hint: {each.hint}" for each in problems if each.hint)
    error.__notes__ = [*map(str, problems[1:]), *hints]


def counted(number: int, noun: str) -> str:
    """Format a count and its noun: 1 head, 1,000 heads."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def inert(text: str) -> str:
    """Escape the characters of a text that control a terminal or change the direction of writing."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def inert_json(text: str) -> str:
    """Escape the control characters in JSON text, so that no terminal obeys them; the JSON value stays the same."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def visible(text: object, limit: int = 200) -> str:
    """Return a value as text, its non-printable characters escaped, cut after `limit` characters."""
    escaped = str(text)[: limit + 1]  # a text of strangers may be long
    if not escaped.isprintable():
        escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in escaped)
    return escaped if len(escaped) <= limit else escaped[:limit] + "…"


def shown(text: object, limit: int = 200) -> str:
    """Return a value in double quotes for a message, escaped and cut as `visible` does."""
    return f'"{visible(text, limit)}"'
