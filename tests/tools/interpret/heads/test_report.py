"""A report on heads as rows, as CSV and as tables in the terminal."""

from __future__ import annotations

import csv
import io
from math import nan
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

from gpt_cli.attention_maps.head_metrics import COLUMNS, HeadScores
from gpt_cli.tools.interpret.heads.report import HEADINGS, HeadReport, change_rows, head_rows, sort_rows
from gpt_cli.tools.interpret.reports import as_csv


def scores_of(**columns: list[float]) -> HeadScores:
    """Scores of layer 3 with heads 0 and 2; 0.25 in columns that are not given."""
    found = {name: np.array([columns.get(name, [0.25, 0.25])]) for name in COLUMNS}
    return HeadScores((3,), (0, 2), found)


def test_a_head_has_a_row_with_its_place_its_scores_and_its_label() -> None:
    first, second = head_rows(scores_of(previous_token=[0.75, 0.25], duplicate_token=[nan, 0.125]), 8)
    assert list(first) == ["layer", "head", *COLUMNS, "label"]
    assert (first["layer"], first["head"], first["label"]) == (3, 0, "previous token")
    assert (first["previous_token"], first["duplicate_token"]) == (0.75, None)
    assert (second["layer"], second["head"], second["label"]) == (3, 2, None)
    assert second["duplicate_token"] == 0.125


def test_rows_are_sorted_by_a_column_with_the_unknown_last() -> None:
    rows = [{"head": head, "self": share} for head, share in enumerate([0.5, None, 0.75, 0.0])]
    assert [row["head"] for row in sort_rows(rows, "self")] == [2, 0, 3, 1]
    assert sort_rows(rows, None) == rows


def test_changes_are_those_of_the_heads_in_order() -> None:
    assert change_rows(np.array([[0.5, -0.25]]), np.array([[0.125, nan]])) == [
        {"loss_change": 0.5, "loss_change_error": 0.125},
        {"loss_change": -0.25, "loss_change_error": None},
    ]


def parsed(content: bytes) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(content.decode()))]


def test_a_line_of_csv_has_the_values_of_a_row() -> None:
    found = parsed(as_csv(head_rows(scores_of(entropy=[1.5, 2.5], duplicate_token=[nan, 0.5]), 8)))
    assert [*found[0]] == ["layer", "head", *COLUMNS, "label"]
    assert [line["entropy"] for line in found] == ["1.5", "2.5"]
    assert [line["duplicate_token"] for line in found] == ["", "0.5"]
    assert [line["label"] for line in found] == ["", "duplicate token"]


def test_tokens_have_columns_of_their_own_in_csv() -> None:
    row = {"layer": 0, "head": 1, "raises": [{"token": ' "a", b\n', "id": 7, "logit": -1.5}, {"token": "今", "id": 8}]}
    (found,) = parsed(as_csv([row]))
    assert (found["raises_1_token"], found["raises_1_id"], found["raises_1_logit"]) == (' "a", b\n', "7", "-1.5")
    assert found["raises_2_token"] == "今"


def test_a_token_never_becomes_a_formula_of_a_spreadsheet() -> None:
    tokens = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\n=1", "＝1", "a=1", "\r", ""]
    (found,) = parsed(as_csv([{"layer": 0, "raises": [{"token": token} for token in tokens]}]))
    cells = [found[f"raises_{number}_token"] for number in range(1, 11)]
    assert cells == [f"'{token}" for token in tokens[:7]] + tokens[7:]


def test_what_a_layer_is_worth_stands_in_the_rows_of_its_heads() -> None:
    layers = [{"layer": layer, "loss_change": layer / 2, "loss_change_error": None} for layer in (0, 1)]
    found = parsed(as_csv([{"layer": layer, "head": head} for layer in (1, 0) for head in (0, 1)], layers))
    assert [line["layer_loss_change"] for line in found] == ["0.5", "0.5", "0.0", "0.0"]
    assert found[0]["layer_loss_change_error"] == ""


def report_of(rows: list[dict[str, Any]], **more: Any) -> HeadReport:
    return HeadReport("runs/a/checkpoints/best.safetensors", 1, "The", 1, rows, **more)


def row(layer: int, head: int, **more: Any) -> dict[str, Any]:
    return {"layer": layer, "head": head, **dict.fromkeys(COLUMNS, 0.25), "label": None} | more


def raises(*tokens: str) -> list[dict[str, Any]]:
    return [{"token": token, "id": number, "logit": 1.5 - number} for number, token in enumerate(tokens)]


def test_every_column_has_a_heading() -> None:
    assert tuple(HEADINGS) == COLUMNS


def test_numbers_stand_below_each_other() -> None:
    rows = [row(0, 0, mean_distance=7.04, duplicate_token=None), row(11, 2, mean_distance=123.4, label="self")]
    assert report_of(rows).as_text().splitlines() == [
        "head    entr  dist  first  prev  self   dup   ind  label",
        "L0 H0   0.25   7.0   0.25  0.25  0.25     -  0.25",
        "L11 H2  0.25   123   0.25  0.25  0.25  0.25  0.25  self",
    ]


def test_a_change_has_its_sign_and_its_error_where_there_is_one() -> None:
    rows = [
        row(0, 0, loss_change=0.01234, loss_change_error=0.00056, label="previous token"),
        row(0, 1, loss_change=-0.5, loss_change_error=None),
    ]
    first, second = report_of(rows, loss=3.0).as_text().splitlines()[1:]
    assert first.endswith("0.25  +0.0123 ±0.0006  previous")
    assert second.endswith("0.25          -0.5000")


def test_the_widest_table_of_a_gpt2_has_80_columns() -> None:
    rows = [
        row(11, 11, entropy=6.93, mean_distance=1023.4, loss_change=-0.1234, loss_change_error=0.5, label="duplicate token")
    ]  # fmt: skip
    found = report_of(rows, loss=3.0)
    assert max(map(cell_len, [*found.as_text().splitlines(), *found.legend()])) <= 80


def test_whole_layers_have_a_table_of_their_own() -> None:
    layers = [{"layer": 3, "loss_change": 1.5, "loss_change_error": 0.25}]
    _, _, second = report_of([row(3, 0)], layers=layers, loss=3.0).as_text().partition("\n\n")
    assert second.splitlines() == ["layer  loss change", "3      +1.5000 ±0.2500"]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, '"今天" +1.50  " is" +0.50  "↵" -0.50'),
        (34, '"今天" +1.50  " is" +0.50'),
        (32, '"今天" +1.50'),  # wide characters count as two
        (5, '"今天" +1.50'),
    ],
)
def test_as_many_raised_tokens_as_fit_stand_in_quotes(width: int, shown: str) -> None:
    found = report_of([row(0, 1, raises=raises("今天", " is", "\n"))], query={"position": 4, "token": " the"})
    _, _, second = found.as_text(width).partition("\n\n")
    assert second.splitlines() == ['head   raised most at token 4, " the"', f"L0 H1  {shown}"]


def test_a_token_controls_no_terminal() -> None:
    found = report_of([row(0, 1, raises=raises("\x1b[2J", "\u202e"))], query={"position": 0, "token": "\r"})
    assert all(character.isprintable() or character == "\n" for character in found.as_text())
