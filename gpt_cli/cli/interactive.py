"""`gpt sample` on a terminal without a prompt: lines in, continuations out."""

from __future__ import annotations

import contextlib
import difflib
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import typer

from gpt_cli.cli import options
from gpt_cli.cli.terminal import Console
from gpt_cli.errors import DataError, GptError, shown, visible
from gpt_cli.language import say

# the flags of `gpt sample` that may change
FLAGS: dict[str, Any] = {
    "seed": options.Seed,
    "temperature": options.Temperature,
    "top-k": options.TopK,
    "top-p": options.TopP,
    "min-p": options.MinP,
    "repetition-penalty": options.RepetitionPenalty,
    "max-new-tokens": options.MaxNewTokens,
    "stop": options.Stop,
    "without": options.Without,
    "checkpoint": options.WhichCheckpoint,
}
# what to type for no value
OFF = {
    "seed": "random",
    "top-k": "off",
    "top-p": "off",
    "min-p": "off",
    "stop": "off",
    "without": "off",
    "checkpoint": "best",
}
EMPTY_STOP = "the text is empty; name the text before which a sample ends"
NO_STOP = "/stop TEXT ends answers before that text; /stop off lets them go on"
LEAVING = ("quit", "exit", "bye", "exit()", "quit()")
WELCOME = (
    "Type the beginning of a text. Ctrl-C ends the answer, Ctrl-D or /quit leaves, /help lists what you can change."
)


@dataclass(frozen=True)
class SamplingChoices:
    """What may change between answers, by the names of the flags; no seed means another one for each answer."""

    values: dict[str, Any] = field(default_factory=dict)

    def changed(self, line: str) -> SamplingChoices:
        """With the change that a line such as `/temperature 1.2` asks for; raises typer.BadParameter."""
        name, _, text = line.removeprefix("/").partition(" ")
        name = _known(name, text)
        if name == "stop":
            # the text counts as it is typed, as spaces are part of it
            more = text.replace("\\n", "\n")
            if not text.strip():
                raise typer.BadParameter(NO_STOP)
            found = (*dict.fromkeys((*self.values.get("stop", ()), more)),)
            return self._with(name, () if text.strip() == OFF[name] else found)
        read, text = _flag(name).parser or str, text.strip()
        return self._with(name, None if text and text == OFF.get(name) else read(text))

    def _with(self, name: str, value: object) -> SamplingChoices:
        return replace(self, values={**self.values, name: value})

    def seed(self) -> int:
        seed: int | None = self.values.get("seed")
        return secrets.randbelow(2**31) if seed is None else seed

    @property
    def model(self) -> tuple[str | None, str | None]:
        """What another model is loaded for: the checkpoint, and the heads that are switched off."""
        return self.values.get("checkpoint"), self.values.get("without")

    def lines(self) -> list[str]:
        """The answer to /help: what can be typed to get what holds now."""
        return [line for name in FLAGS for line in self._lines_of(name)]

    def explained(self, name: str) -> list[str]:
        """The answer to /help temperature: what holds now, what it means and what is allowed.

        Raises typer.BadParameter for a name that is none.
        """
        name = _known(name)
        flag, off = _flag(name), OFF.get(name)
        takes = [say(f"Allowed: {flag.parser.__doc__}")] if flag.parser else []
        none = [say(f"Or: /{name} {off}")] if off else []
        return [*self._lines_of(name), say(flag.help or ""), *takes, *none]

    def confirmed(self, word: str) -> list[str]:
        """The answer to a change of `/temperature` or so: temperature 0.5."""
        return [line.removeprefix("/") for line in self._lines_of(_known(word.removeprefix("/")))]

    def _lines_of(self, name: str) -> list[str]:
        value = self.values.get(name)
        each = (value or [None]) if name == "stop" else [value]
        return [f"/{name} {OFF.get(name) if one is None else visible(one)}" for one in each]


Answer = Callable[[str, SamplingChoices], object]


def converse(console: Console, choices: SamplingChoices, open_model: Callable[[SamplingChoices], Answer]) -> None:
    """Answer lines until the input ends; what `open_model` gives prints the continuation of one."""
    answer = open_model(choices)
    console.notice(WELCOME)
    for line in _lines():
        word, _, more = line.strip().partition(" ")
        if not more and word.removeprefix("/") in LEAVING:
            return
        try:
            if word == "/help" and more:
                console.result("\n".join(choices.explained(more.strip().removeprefix("/"))))
            elif word == "/help":
                console.result(say(WELCOME))
                console.result(
                    say("These are the values now; type a line like them to change one, /help NAME for more:")
                )
                console.result("\n".join(choices.lines()))
            elif line.startswith("/"):
                changed = choices.changed(line)
                if changed.model == choices.model:
                    console.notice("\n".join(changed.confirmed(word)))
                else:  # which says itself what it opens
                    answer = open_model(changed)
                choices = changed
            else:
                if not line:
                    console.notice("an empty line starts a new document")
                answer(line, choices)
        except typer.BadParameter as error:
            console.warn(error.message)
        except GptError as error:
            console.warn(error.sentence)
            if isinstance(error, DataError) and error.hint:  # hints of others are about flags of a command line
                console.hint(error.hint)
        except KeyboardInterrupt:
            console.result("")


def _known(name: str, text: str = "") -> str:
    """The name of a setting, with - or _ in it; raises typer.BadParameter for any other, such as /set with a `text`."""
    if (known := name.replace("_", "-")) not in FLAGS:
        near = difflib.get_close_matches(known, FLAGS, n=1) or [flag for flag in FLAGS if flag.startswith(known)]
        words = [word.replace("_", "-") for word in re.split(r"[\s=]+", text)]
        if named := [word for word in words if word in FLAGS]:
            near = [" ".join(words[words.index(named[0]) :])]
        help_ = f"did you mean /{near[0]}?" if near else "/help lists what you can change"
        raise typer.BadParameter(f"there is no {shown('/' + name)}; {help_}")
    return known


def _flag(name: str) -> Any:
    """What typer knows about a flag of `gpt sample`: its `help` and its `parser`."""
    return FLAGS[name].__metadata__[0]


def _lines() -> Iterator[str]:
    """What the user types, line by line, with history and editing where the system has them."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - its import gives input() a history
    while True:
        try:
            yield input("> ")
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
