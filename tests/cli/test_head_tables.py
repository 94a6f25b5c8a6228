"""Reports on heads as tables in the terminal."""

from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from gpt_cli.cli.work.head_tables import HEADINGS, in_tables, legend
from gpt_cli.inspecting.heads.columns import COLUMNS


def row(layer: int, head: int, **more: Any) -> dict[str, Any]:
    return {"layer": layer, "head": head, **dict.fromkeys(COLUMNS, 0.25), "label": None} | more


def raises(*tokens: str) -> list[dict[str, Any]]:
    return [{"token": token, "id": number, "logit": 1.5 - number} for number, token in enumerate(tokens)]


def test_every_column_has_a_heading() -> None:
    assert tuple(HEADINGS) == COLUMNS


def test_numbers_stand_below_each_other() -> None:
    rows = [row(0, 0, mean_distance=7.04, duplicate_token=None), row(11, 2, mean_distance=123.4, label="self")]
    assert in_tables({"heads": rows}, 80).splitlines() == [
        "head    entr  dist  first  prev  self   dup   ind  label",
        "L0 H0   0.25   7.0   0.25  0.25  0.25     -  0.25",
        "L11 H2  0.25   123   0.25  0.25  0.25  0.25  0.25  self",
    ]


def test_a_change_has_its_sign_and_its_error_where_there_is_one() -> None:
    rows = [
        row(0, 0, loss_change=0.01234, loss_change_error=0.00056, label="previous token"),
        row(0, 1, loss_change=-0.5, loss_change_error=None),
    ]
    first, second = in_tables({"heads": rows, "loss": 3.0}, 80).splitlines()[1:]
    assert first.endswith("0.25  +0.0123 ±0.0006  previous")
    assert second.endswith("0.25          -0.5000")


def test_the_widest_table_of_a_gpt2_has_80_columns() -> None:
    rows = [
        row(11, 11, entropy=6.93, mean_distance=1023.4, loss_change=-0.1234, loss_change_error=0.5, label="duplicate token")
    ]  # fmt: skip
    found = {"heads": rows, "loss": 3.0}
    assert max(map(cell_len, [*in_tables(found, 80).splitlines(), *legend(found)])) <= 80


def test_whole_layers_have_a_table_of_their_own() -> None:
    layers = [{"layer": 3, "loss_change": 1.5, "loss_change_error": 0.25}]
    _, _, second = in_tables({"heads": [row(3, 0)], "layers": layers, "loss": 3.0}, 80).partition("\n\n")
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
    found = {"heads": [row(0, 1, raises=raises("今天", " is", "\n"))], "query": {"position": 4, "token": " the"}}
    _, _, second = in_tables(found, width).partition("\n\n")
    assert second.splitlines() == ['head   raised most at token 4, " the"', f"L0 H1  {shown}"]


def test_a_token_controls_no_terminal() -> None:
    found = {"heads": [row(0, 1, raises=raises("\x1b[2J", "\u202e"))], "query": {"position": 0, "token": "\r"}}
    assert all(character.isprintable() or character == "\n" for character in in_tables(found, 80))
