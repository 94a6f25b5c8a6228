"""Every text for the user has a Chinese one: what the source hands over, and what help prints."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.messages import PACKAGE, half_said, messages, places, refusals, skeleton

from gpt_cli.cli.app import build
from gpt_cli.language import chinese

FILES = sorted((PACKAGE / "language" / "zh").glob("*.toml"))
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def test_every_message_of_the_source_has_both_languages() -> None:
    known = {skeleton(text) for text in chinese().pairs}
    missing = {
        message.text: message.where
        for message in messages()
        if message.text not in known and any(map(_half_said, message.whole - known))
    }
    assert not missing, "\n".join(f"{where}: {text}" for text, where in missing.items())


def test_every_setting_refuses_a_value_in_both_languages() -> None:
    assert not [text for text in refusals() if any(half_said(text, chinese()))]


def test_every_place_of_an_error_has_both_languages() -> None:
    found = set(places())
    assert {"corpus", "memory"} <= found
    assert found - {"stdin"} <= chinese().pairs.keys()


def test_every_help_text_has_both_languages() -> None:
    missing = sorted(text for text in _help_texts() if chinese().find(text) is None)
    assert not missing, "\n".join(missing)


def test_each_pair_has_the_same_values() -> None:
    for text, said in chinese().pairs.items():
        names = set(re.findall(r"\{(\w*)(?:![tnm])?\}", text))
        used = set(re.findall(r"\{(\w*)\}", said))
        assert used <= names, text
        assert names - used <= {"s"}, f"{text}: only the ending of a plural, {{s}}, is left out in Chinese"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_of_the_catalogue_is_chinese_and_repeats_no_other(file: Path) -> None:
    pairs = tomllib.loads(file.read_text("utf-8"))
    others = [key for other in FILES if other != file for key in tomllib.loads(other.read_text("utf-8"))]
    assert not set(pairs) & set(others)
    for text, said in pairs.items():
        words = re.sub(r"\{[^{}]*\}", "", said)
        assert _CHINESE.search(said) or text == said or not any(map(str.isalpha, words)), f"{text}: {said}"


def test_nothing_in_the_catalogue_is_said_by_nobody() -> None:
    import typer

    sources = [*PACKAGE.rglob("*.py"), *Path(typer.__file__).parent.rglob("*.py")]
    # what help joins of several lines, and what a string continues on the next, is one text here
    said = " ".join(re.sub(r'"\s*\n\s*f?"', "", path.read_text("utf-8")) for path in sources)
    said = re.sub(r"\s+", " ", said) + "\n".join([*_help_texts(), *refusals()])
    foreign = tomllib.loads((FILES[0].parent / "libraries.toml").read_text("utf-8"))
    stale = [
        text
        for text in chinese().pairs.keys() - foreign.keys()
        if not all(_occurs(re.sub(r"\s+", " ", part), said) for part in skeleton(text).split("{}"))
    ]
    assert not stale, "\n".join(stale)


def _occurs(text: str, said: str) -> bool:
    """Whether a text comes from a source that may put it together from a few pieces, of four words on average."""
    if text in said:
        return True
    words = re.findall(r"\w+|\s+|[^\w\s]+", text)
    fewest = [0]  # pieces of the first words; marks between them cost nothing
    for end in range(1, len(words) + 1):
        pieces = ((start, "".join(words[start:end])) for start in range(end))
        found = (fewest[start] + any(map(str.isalnum, piece)) for start, piece in pieces if piece in said)
        fewest.append(min(found, default=len(words) + 1))
    return fewest[-1] <= 1 + (len(re.findall(r"\w+", text)) + 2) // 4


def _half_said(text: str) -> bool:
    """Whether Chinese lacks some of a text of the source, with a number for each value."""
    return any(half_said(text.replace("{}", "7"), chinese()))


def _help_texts() -> set[str]:
    """All paragraphs, headings and descriptions of flags that help prints."""
    found: set[str] = {"Usage: "}
    _collect(build(), "gpt", found)
    return found


def _collect(command: object, name: str, found: set[str]) -> None:
    import typer._click.core as click

    from gpt_cli.cli.helping import HelpContext, TranslatedHelp

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
