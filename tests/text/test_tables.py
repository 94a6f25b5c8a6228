"""Rows of .csv: what is no table is named with its line. test_records.py compares the dialects."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_cli.config import DataConfig
from gpt_cli.errors import DataError
from gpt_cli.text import tables as module
from gpt_cli.text.load import read_data
from gpt_cli.text.remarks import Remarks
from gpt_cli.text.tables import csv_rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,text\n1,a,b\n", "a.csv:2: this row has 3 cells, but the first one names 2 columns"),
        ('text\n"a\nb', "a.csv:3: this is no table of cells"),
        ('text\n"a"b\n', "a.csv:2: this is no table of cells"),
        ("text\n\xff", "a.csv: line 2: text must be UTF-8"),
    ],
)
def test_what_is_no_table_is_named_with_its_line(here: Path, content: str, message: str) -> None:
    (here / "a.csv").write_text(content, encoding="latin-1")
    with pytest.raises(DataError) as raised:
        read_data(DataConfig(source="a.csv"))
    assert message in raised.value.lines()[0]


def test_lines_without_cells_and_a_header_alone_are_no_rows() -> None:
    assert [record.fields for record in csv_rows(["\n\na,b\n\n1,2\n\n"], "f", Remarks())] == [{"a": "1", "b": "2"}]
    assert list(csv_rows(["a,b\n"], "f", Remarks())) == list(csv_rows([], "f", Remarks())) == []


@pytest.mark.parametrize("size", [1, 2, 5])
def test_rows_are_the_same_in_blocks_of_any_size(size: int) -> None:
    content = 'id;text\r\n1;"a ""b""\r\nc"\r\n2;今天\r\n'
    rows = csv_rows((content[at : at + size] for at in range(0, len(content), size)), "f", Remarks())
    assert [record.fields["text"] for record in rows] == ['a "b"\r\nc', "今天"]


@pytest.mark.parametrize("content", ['"' + "a\n" * 40, '"' + 'a\n","' * 30, "," * 70 + "\n", "x,y\n" + "," * 70 + "\n"])
def test_a_row_that_memory_may_not_hold_is_refused(content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROW_CHARACTERS", 60)
    monkeypatch.setattr(module, "HEADER_CHARACTERS", 50)
    with pytest.raises(DataError, match=r"a row has too many characters|this line has more than 60 characters"):
        list(csv_rows([content], "f", Remarks()))
    assert len(list(csv_rows(["x,y\n" + "1,2\n" * 100], "f", Remarks()))) == 100
