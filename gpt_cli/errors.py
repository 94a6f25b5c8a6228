"""The errors that a user can mend: one kind for each exit code, and one way to print them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence

from gpt_cli.common.language import labelled, language, say
from gpt_cli.common.spelling import as_flags, as_keywords

EXIT_CODE_BUG = 1
EXIT_CODE_STDOUT_CLOSED = 141
# but for tabs and ends of lines
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class GptError(Exception):
    """Something the user can mend, printed as `error: where: sentence` and, where there is one, `hint: ...`.

    `where` is the flag, the key, the file and line, or the object that the sentence is about; the sentence says what
    is wrong and what would be right. A raised error may carry others, so that the user sees all problems at once; then
    each hint names what it is `about`, by default `where`.
    """

    exit_code = EXIT_CODE_BUG

    def __init__(self, where: str, sentence: str, *, hint: str | None = None, about: str | None = None):
        super().__init__(where, sentence)
        self.where, self.sentence, self.hint, self.about = where, sentence, hint, about
        self.others: list[GptError] = []

    def __str__(self) -> str:
        return self._said(as_keywords, str, "{}: ".format)

    def lines(self, spell: Callable[[str], str] = as_flags) -> list[str]:
        """The text for stderr in the language of the user: an `error:` line a problem, then the hints, each once.

        `spell` writes the fields that it names.
        """
        problems = [self, *self.others]
        hints: dict[str, list[str]] = {}
        for problem in problems:
            if problem.hint:
                hints.setdefault(problem.hint, []).append(spell(problem.about or problem.where))
        errors = [f"error: {problem._said(spell, say, labelled)}" for problem in problems]
        comma, colon = ("、", "：") if language() == "zh" else (", ", ": ")
        lines = errors + [
            # one that all problems share speaks for itself
            f"hint: {comma.join(map(say, about)) + colon if len(about) < len(problems) else ''}{say(spell(hint))}"
            for hint, about in hints.items()
        ]
        return [inert(line).replace("\n", "\\n") for line in lines]  # commands in hints contain names as they are

    def _said(self, spell: Callable[[str], str], say: Callable[[str], str], labelled: Callable[[str], str]) -> str:
        """The sentence behind its place, unless it begins with that."""
        where, sentence = spell(self.where), say(spell(self.sentence))
        return sentence if sentence.startswith(f"{where} ") else f"{labelled(where)}{sentence}"


class UsageError(GptError):
    """A flag or a setting is wrong."""

    exit_code = 2


class DataError(GptError):
    """The corpus, the token file or the prompt is wrong."""

    exit_code = 3


class CheckpointError(GptError):
    """A checkpoint or run is missing, damaged, foreign, too new or does not fit."""

    exit_code = 4


class EnvironmentFailure(GptError):  # noqa: N818 - EnvironmentError is a name of Python
    """The machine refuses: a full disk, no permission, a missing device, too little memory, no network."""

    exit_code = 5


class DivergedError(GptError):
    """The loss or the gradient is not finite."""

    exit_code = 6


def advised(errors: Sequence[GptError], hint: str) -> GptError:
    """One error to raise for several problems that one hint mends."""
    for error in errors:
        error.hint = hint
    return together(errors)


def together(errors: Sequence[GptError]) -> GptError:
    """One error to raise for several problems: the first, carrying the rest."""
    first, *others = errors
    first.others = others
    return first


@contextlib.contextmanager
def collecting(wrong: list[GptError]) -> Iterator[None]:
    """Add what is wrong to a list, and go on."""
    try:
        yield
    except GptError as error:
        wrong += (error, *error.others)
        error.others = []


@contextlib.contextmanager
def keywords_named() -> Iterator[None]:
    """Errors name the keywords of a function."""
    try:
        yield
    except GptError as error:
        name_keywords(error)
        raise


def name_keywords(error: GptError) -> None:
    """Write an error, and those that it carries, in keywords; a traceback shows them all, and their hints."""
    for each in (problems := [error, *error.others]):
        each.where, each.sentence = as_keywords(each.where), as_keywords(each.sentence)
        each.hint = each.hint and as_keywords(each.hint)
        each.args = (each.where, each.sentence)  # which repr shows
    hints = dict.fromkeys(f"hint: {each.hint}" for each in problems if each.hint)
    error.__notes__ = [*map(str, problems[1:]), *hints]


def counted(number: int, noun: str) -> str:
    """A number of things: 1 head, 1,000 heads."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def inert(text: str) -> str:
    """A text for a terminal, with the characters escaped that control it or turn the direction of writing."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def inert_json(text: str) -> str:
    """JSON whose texts do nothing to a terminal, with the same content."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def visible(text: object, limit: int = 200) -> str:
    """A value with its control characters escaped, cut after `limit` characters."""
    escaped = str(text)[: limit + 1]  # a text of strangers may be long
    if not escaped.isprintable():
        escaped = "".join(
            c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in escaped
        )
    return escaped if len(escaped) <= limit else escaped[:limit] + "…"


def within(error: Exception, where: str) -> str:
    """What an error says, without the place where the sentence around it names that already."""
    return str(error).removeprefix(f"{where}: ")


def shown(text: object, limit: int = 200) -> str:
    """A value as a message contains it: `visible`, in quotes."""
    return f'"{visible(text, limit)}"'
