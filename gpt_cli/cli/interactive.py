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

READERS: dict[str, Callable[[object], Any]] = {
    "seed": options.whole_number(0),
    "temperature": options.number(0),
    "top-k": options.whole_number(0),
    "top-p": options.number(0, 1),
    "min-p": options.number(0, 1),
    "repetition-penalty": options.number(0, above=True),
    "max-new-tokens": options.whole_number(1, 1_000_000),
}
HELP = (
    "type the beginning of a text; Ctrl-C ends the answer, Ctrl-D leaves; "
    f"change a setting with {', '.join(f'/{name}' for name in READERS)} and a value, e.g. /temperature 1.2"
)


@dataclass(frozen=True)
class SamplingChoices:
    """What may be changed between answers, named as the flags; no seed means another one for each answer."""

    values: dict[str, Any] = field(default_factory=dict)

    def changed(self, line: str) -> SamplingChoices:
        """With the change that a line such as `/temperature 1.2` asks for; raises typer.BadParameter."""
        name, _, value = line.removeprefix("/").replace("_", "-").partition(" ")
        if name not in READERS:
            raise typer.BadParameter(f"/{name} is not known; {HELP}")
        return replace(self, values={**self.values, name: READERS[name](value.strip())})

    def seed(self) -> int:
        seed: int | None = self.values.get("seed")
        return secrets.randbelow(2**31) if seed is None else seed


def converse(console: Console, choices: SamplingChoices, answer: Callable[[str, SamplingChoices], object]) -> None:
    """Answer lines until the input ends; `answer` prints the continuation of one."""
    console.notice(HELP)
    for line in _lines():
        if not line.startswith("/"):
            try:
                answer(line, choices)
            except KeyboardInterrupt:
                console.result("")
            continue
        try:
            choices = choices.changed(line)
        except typer.BadParameter as error:
            console.warn(str(error.message))


def _lines() -> Iterator[str]:
    """What is typed, line by line, with history and editing where the system has them."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - its import is what gives input() a history
    while True:
        try:
            yield input("> ")
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
