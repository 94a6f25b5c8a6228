"""Items of an array, whatever the blocks in which its text comes, and arrays that are damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_cli.errors import DataError
from gpt_cli.text import json_records as module
from gpt_cli.text.json_records import form_of_json, json_items
from gpt_cli.text.remarks import Remarks


def blocks(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def items(text: str, size: int = 8) -> list[Any]:
    return [record.fields for record in json_items(blocks(text, size), "a.json", Remarks())]


@given(
    st.lists(st.one_of(st.text(max_size=20), st.dictionaries(st.text(max_size=3), st.text(max_size=20), max_size=3))),
    st.integers(1, 40),
    st.sampled_from([None, 1]),
)
def test_items_are_the_same_in_blocks_of_any_size(content: list[Any], size: int, indent: int | None) -> None:
    assert items(json.dumps(content, indent=indent), size) == content


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": "b"}', "a.json: item 1: the array ends without its bracket"),
        ('[{"a": "b"}, ', "the file is cut off"),
        ('[{"a": "b"}, {"a"', "a.json: item 2: this is not JSON, or the file is cut off here"),
        ('["a" "b"]', "a.json: item 2: this is not JSON: a comma is missing"),
        ('["a", 3]', "a.json: item 2: this item is neither an object nor a text"),
        ('["a"] ["b"]', "after the array of 1 items, there is more text"),
        ('["a", }]', "a.json: item 2: this is not JSON"),
    ],
)
def test_a_damaged_array_is_named_with_its_item(text: str, message: str, size: int) -> None:
    with pytest.raises(DataError) as raised:
        items(text, size)
    assert message in raised.value.lines()[0]


def test_an_item_that_memory_may_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_CHARACTERS", 100)
    with pytest.raises(DataError, match="item 2: this is not JSON, or has more than 100 characters"):
        items(json.dumps(["a", "b" * 1000]))


@pytest.mark.parametrize(
    ("start", "form"),
    [
        ('[{"text"', "array"),
        (' \n["a"', "array"),
        ("[1, 2]", None),
        ('{"a": 1}\n{"a": 2}\n', "lines"),
        ('{\n  "a": 1\n}\n', None),
        ('{"a": 1}\n', None),
        ("prose", None),
    ],
)
def test_what_a_json_file_holds_shows_at_its_start(start: str, form: str | None) -> None:
    assert form_of_json(start) == form
