"""A report on heads as rows and as CSV."""

from __future__ import annotations

import csv
import io
from math import nan

import numpy as np

from gpt_cli.inspecting.heads.columns import COLUMNS, HeadScores
from gpt_cli.inspecting.heads.report import as_csv, change_rows, head_rows, sort_rows


def scores_of(**columns: list[float]) -> HeadScores:
    """Scores of layer 3 with heads 0 and 2; 0.25 in columns that are not given."""
    found = {name: np.array([columns.get(name, [0.25, 0.25])]) for name in COLUMNS}
    return HeadScores((3,), (0, 2), found)


def test_a_head_has_a_row_with_its_place_its_scores_and_its_label() -> None:
    first, second = head_rows(scores_of(previous_token=[0.75, 0.25], duplicate_token=[nan, 0.125]))
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
    found = parsed(as_csv(head_rows(scores_of(entropy=[1.5, 2.5], duplicate_token=[nan, 0.5]))))
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
