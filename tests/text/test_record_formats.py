"""Rows of .csv and items of JSON arrays, whatever the blocks in which their text comes, and damaged ones.

test_records.py compares the dialects of .csv.
"""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.corpora import documents_of
from support.texts import read, read_with_notices, refused, run_hint

from gpt_cli.errors import DataError
from gpt_cli.text import record_formats as module
from gpt_cli.text.record_formats import csv_rows, json_items
from gpt_cli.text.remarks import Remarks


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,text\n1,a,b\n", "a.csv:2: this row has 3 cells, but the first one names 2 columns"),
        ("text\nGood morning, dear\n", "a.csv:2: this row has 2 cells, but the first one names 1 column"),
        ("id,text\n1\n", "a.csv:2: this row has 1 cell, but the first one names 2 columns"),
        ('text\n"a\nb', "a.csv:2: this is not a table of cells"),
        ('text\n"a"b\n', "a.csv:2: this is not a table of cells"),
        ("text\n\xff", "a.csv: line 2: text must be UTF-8"),
    ],
)
def test_what_is_no_table_is_named_with_its_line(here: Path, content: str, message: str) -> None:
    (here / "a.csv").write_text(content, encoding="latin-1")
    assert message in refused("a.csv").lines()[0]


def test_the_command_of_a_hint_keeps_ordinary_quotation_marks(here: Path) -> None:
    (here / "a.tsv").write_text('id\ttext\n1\t"Yes" she said\n\t\n2\ta "b" c\n')
    run_hint(refused("a.tsv", "not a table of cells"), "if its quotation marks belong to the text: ")
    assert documents_of(read("a-quoted.tsv")) == ('"Yes" she said', 'a "b" c')


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("id,text\n1,Good morning, dear\n", 'put a cell with the delimiter or a line break in quotes: "a, b"'),
        ("id,text\n1,Good night\n2\n", "‹data.skip_bad=true› leaves such records out"),
        ("id,text,\n1,Good morning\n2,Good night\n", None),
    ],
)
def test_a_row_of_other_cells_has_a_hint_that_fits(here: Path, content: str, hint: str | None) -> None:
    (here / "a.csv").write_text(content)
    assert refused("a.csv", "this row has").hint == hint


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (
            "id|text, as read\nLJ1|Printing, in the only sense,\nLJ2|in being\n",
            ("Printing, in the only sense,", "in being"),
        ),
        ("Nr;text;Preis, EUR, netto\n1;Ein Apfel, rot;1,50\n2;Kuchen;2\n", ("Ein Apfel, rot", "Kuchen")),
        ('id,text\n1,"a\nb; c\nd"\n2,"e\nf\ng"\n', ("a\nb; c\nd", "e\nf\ng")),
    ],
)
def test_the_delimiter_gives_the_first_rows_equal_numbers_of_cells(
    here: Path, content: str, texts: tuple[str, ...]
) -> None:
    (here / "a.csv").write_text(content)
    field = "text, as read" if "text, as read" in content else "text"
    assert documents_of(read("a.csv", text_field=field)) == texts


def test_names_of_columns_may_have_spaces_around_them(here: Path) -> None:
    (here / "a.csv").write_text("id, text , label\n1,Snow all day,a\n")
    assert documents_of(read("a.csv")) == ("Snow all day",)


def test_excel_may_name_the_delimiter_in_the_first_line(here: Path) -> None:
    (here / "a.csv").write_text("sep=;\nid;text\n1;a, b\n2\n")
    assert read_with_notices("a.csv", skip_bad=True) == (("a, b",), ["left out 1 bad record: a.csv:4"])


def test_the_command_of_a_hint_mends_the_line_ends_of_old_macs(here: Path) -> None:
    (here / "a.csv").write_bytes(b"id,text\r1,one\r2,two\r")
    run_hint(refused("a.csv", r"a line ends with \\r alone"))
    assert documents_of(read("a-lf.csv")) == ("one", "two")


def test_a_row_of_several_lines_is_named_by_its_first() -> None:
    rows = [*csv_rows(['text\n"a\nb"\nc\n'], "f", Remarks())]
    assert [row.where for row in rows] == ["f:2", "f:4"]


def test_an_array_is_read_as_one_whatever_the_name_says(here: Path) -> None:
    (here / "a.jsonl").write_text(' \n[\n{"text": "one"},\n{"text": "two"}\n]')
    assert documents_of(read("a.jsonl")) == ("one", "two")


def test_tags_in_records_are_noted_as_in_plain_text(here: Path) -> None:
    text = "<p>Post <b>1</b></p><br/><a href='x'>more</a>"
    (here / "a.csv").write_text(f"text\n{text}\n")
    (here / "q.jsonl").write_text(json.dumps({"prompt": "a", "response": text}) + "\n")
    (here / "plain.txt").write_text(text)
    for name in ("a.csv", "q.jsonl", "plain.txt"):
        (notice,) = read(name).notices()
        assert notice == f"in {name}, more than a tenth is tags such as <p>, which become tokens"


@pytest.mark.parametrize(
    "text", ['{"data": [{"text": "one"}]}', "[1, 2]", '{"text": "one"}\n', '{\n  "text": "one"\n}\n', "one"]
)
def test_json_that_is_no_list_of_records_is_text_and_a_notice_says_so(here: Path, text: str) -> None:
    (here / "a.json").write_text(text)
    notice = "in a.json, gpt finds no list of records, so it reads the JSON as plain text"
    assert read_with_notices("a.json") == ((text,), [notice])


def test_lines_without_cells_and_a_header_alone_are_no_rows() -> None:
    assert [record.fields for record in csv_rows(["\n\na,b\n\n1,2\n\n"], "f", Remarks())] == [{"a": "1", "b": "2"}]
    assert list(csv_rows(["a,b\n"], "f", Remarks())) == list(csv_rows([], "f", Remarks())) == []


@pytest.mark.parametrize("size", [1, 2, 5])
def test_rows_are_the_same_in_blocks_of_any_size(size: int) -> None:
    content = 'id;text\r\n1;"a ""b""\r\nc"\r\n2;今天\r\n'
    rows = csv_rows(blocks(content, size), "f", Remarks())
    assert [record.fields["text"] for record in rows] == ['a "b"\r\nc', "今天"]


@pytest.mark.parametrize("content", ['"' + "a\n" * 40, '"' + 'a\n","' * 30, "," * 70 + "\n", "x,y\n" + "," * 70 + "\n"])
def test_a_row_that_memory_may_not_hold_is_refused(
    content: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    limit = csv.field_size_limit()
    request.addfinalizer(lambda: csv.field_size_limit(limit))  # of the whole process
    monkeypatch.setattr(module, "ROW_CHARACTERS", 60)
    monkeypatch.setattr(module, "HEADER_CHARACTERS", 50)
    with pytest.raises(DataError, match=r"a row has too many characters|this line has more than 60 characters"):
        list(csv_rows([content], "f", Remarks()))
    assert len(list(csv_rows(["x,y\n" + "1,2\n" * 100], "f", Remarks()))) == 100


def blocks(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def items(text: str, size: int = 8) -> list[Any]:
    return [record.fields for record in json_items(blocks(text, size), "a.json", Remarks())]


@given(
    st.lists(st.text(max_size=20) | st.dictionaries(st.text(max_size=3), st.text(max_size=9), max_size=2), max_size=4),
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
        ('["a"] ["b"]', "after the array of 1 item, there is more text"),
        ('["a", }]', "a.json: item 2: this is not JSON"),
    ],
)
def test_a_damaged_array_is_named_with_its_item(text: str, message: str, size: int) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        items(text, size)


def test_an_item_that_memory_may_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_CHARACTERS", 100)
    with pytest.raises(DataError, match="item 2: this is not JSON, or has more than 100 characters"):
        items(json.dumps(["a", "b" * 1000]))
