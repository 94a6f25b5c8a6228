"""Names of texts that lead nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_cli.errors import DataError
from gpt_cli.text.missing_source import require_there


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("novl.txt", "novel.txt"),
        ("novel.tx", "novel.txt"),
        ("text/poems.txt", "texts/poems.txt"),
        ("texts/poem.txt", "texts/poems.txt"),
        ("poems.txt", "texts/poems.txt"),
        ("pyton-docs", "python-docs"),
        ("nothing-like-it", None),
        ("nowhere/novel.txt", "novel.txt"),
        ("novel", "novel.txt"),
    ],
)
def test_a_text_that_is_missing_is_told_the_nearest_one(here: Path, name: str, meant: str | None) -> None:
    (here / "texts").mkdir()
    for path in ("novel.txt", "novel.log", "texts/poems.txt", ".hidden"):
        (here / path).touch()
    with pytest.raises(DataError, match="there is no such file") as raised:
        require_there(name)
    begin, _, rest = str(raised.value.hint).partition("?")
    assert (begin.removeprefix("did you mean ") if rest else None) == meant


@pytest.mark.parametrize("name", ["the first line\nthe second", "今天天气很好。" * 40])
def test_a_text_in_the_place_of_a_name_is_to_be_saved(name: str) -> None:
    with pytest.raises(DataError, match="this is a text, and gpt reads files") as raised:
        require_there(name)
    assert raised.value.hint == "save the text to a file, and name that"


@pytest.mark.parametrize("name", ["-", "python-docs", "*.txt", "a.txt"])
def test_what_is_there_or_refused_by_who_reads_it_is_not_missing(here: Path, name: str) -> None:
    (here / "a.txt").touch()
    require_there(name)
