"""`gpt sample` on a terminal without a prompt: lines in, continuations out."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import typer

from gpt_cli.cli import options
from gpt_cli.cli.terminal import Console
from gpt_cli.errors import shown
from gpt_cli.language import say

READERS: dict[str, Callable[[object], Any]] = {
    "seed": options.whole_number(0, options.MAX_SEED),
    "temperature": options.TEMPERATURE,
    "top-k": options.TOP_K,
    "top-p": options.SHARE,
    "min-p": options.SHARE,
    "repetition-penalty": options.REPETITION_PENALTY,
    "max-new-tokens": options.NEW_TOKENS,
}
# what to type for no value
OFF = {"seed": "random", "top-k": "off", "top-p": "off", "min-p": "off"}
WELCOME = "Type the beginning of a text. Ctrl-C ends the answer, Ctrl-D leaves, /help lists what you can change."


@dataclass(frozen=True)
class SamplingChoices:
    """What may change between answers, by the names of the flags; no seed means another one for each answer."""

    values: dict[str, Any] = field(default_factory=dict)

    def changed(self, line: str) -> SamplingChoices:
        """With the change that a line such as `/temperature 1.2` asks for; raises typer.BadParameter."""
        name, _, value = line.removeprefix("/").replace("_", "-").partition(" ")
        if name not in READERS:
            raise typer.BadParameter(f"there is no {shown('/' + name)}; /help lists what you can change")
        text = value.strip()
        return replace(self, values={**self.values, name: None if text == OFF.get(name) else READERS[name](text)})

    def seed(self) -> int:
        seed: int | None = self.values.get("seed")
        return secrets.randbelow(2**31) if seed is None else seed

    def lines(self) -> list[str]:
        """The answer to /help: what can be typed to get what holds now."""
        values = {name: self.values.get(name) for name in READERS}
        return [f"/{name} {OFF.get(name) if value is None else value}" for name, value in values.items()]


def converse(console: Console, choices: SamplingChoices, answer: Callable[[str, SamplingChoices], object]) -> None:
    """Answer lines until the input ends; `answer` prints the continuation of one."""
    console.notice(WELCOME)
    for line in _lines():
        if line.strip() == "/help":
            console.result(say(WELCOME))
            console.result(say("These are the values now; type a line like them to change one:"))
            console.result("\n".join(choices.lines()))
        elif line.startswith("/"):
            try:
                choices = choices.changed(line)
            except typer.BadParameter as error:
                console.warn(error.message)
        else:
            try:
                answer(line, choices)
            except KeyboardInterrupt:
                console.result("")


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
