"""Findings: arrays with named axes, rows, CSV, steps, and what the one renderer draws of them."""

import csv
import io
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import gpt_cli
from gpt_cli.common.drawing.panels import Panel
from gpt_cli.common.host import Host
from gpt_cli.tools.interpret.figure import Figure, cell, farthest, heat_map, matrix, named_curves
from gpt_cli.tools.interpret.finding import Finding, stack, table_by_step

NAN = np.nan
FIGURE = Figure(
    "share_of_it", {"layer": (1, 4), "head": (0, 2, 5)}, np.array([[0.1, 0.2, NAN], [0.4, -0.9, 0.6]]), scale="change"
)


class FifthFinding(Finding):
    """What a fifth report would have to say."""

    tabled: ClassVar = {"heads": ("layer", "head")}

    def parts(self, width: int = 80) -> Any:
        return [matrix("layer", ["L1", "L4"], self["share_of_it"], 2)]

    def panels(self) -> list[Panel]:
        return [heat_map(self["share_of_it"])]


def fifth(step: int = 7, loss: float = NAN) -> Finding:
    figures = FIGURE, Figure("loss", {}, np.array(loss), unit="nats")
    return FifthFinding({"checkpoint": "runs/a", "step": step, "text": "$a$"}, figures)


def test_a_figure_is_taken_at_labels_turned_and_joined() -> None:
    assert FIGURE.at(head=5, layer=4).values == 0.6
    some = FIGURE.at(head=[5, 0])
    assert (some.coords, some.values[1].tolist()) == ({"layer": (1, 4), "head": [5, 0]}, [0.6, 0.4])
    turned = FIGURE.over("head", "layer")
    assert (turned.axes, turned.values.shape) == (("head", "layer"), (3, 2))
    joined = FIGURE.by_place("layer", "head")
    assert (joined.axes, joined.coords["place"][4], joined.values[4]) == (("place",), "L4 H2", -0.9)
    assert farthest(joined, 9, 0.3) == ["L4 H2", "L4 H5", "L4 H0"], "of those with a number"


def test_rows_make_the_same_figure_again() -> None:
    rows = [row | {"share_of_it_error": row["layer"] / 8} for row in fifth().rows_along("layer", "head")]
    assert rows[2] == {"layer": 1, "head": 5, "share_of_it": None, "share_of_it_error": 0.125}
    again = Figure.of_rows(rows[::-1], "share_of_it", "layer", "head")
    np.testing.assert_array_equal(again.values, FIGURE.values)
    assert again.error is not None
    assert again.error[1].tolist() == [0.5] * 3


def test_a_fifth_report_needs_a_class_alone(tmp_path: Path) -> None:
    found, said = fifth(), list[str]()
    assert found.as_dict()["heads"][1] == {"layer": 1, "head": 2, "share_of_it": 0.2}
    assert "loss" not in found.as_dict(), "nothing was measured"
    assert str(found).splitlines() == ["layer  H2     H5", "L1     0.20   -", "L4     -0.90  0.60"]
    for ending in ("csv", "json", "svg"):
        found.saved(Host(notice=said.append), tmp_path / f"a.{ending}", (6, "head"))
    assert said[0] == f"wrote {tmp_path / 'a.csv'}: 6 heads"
    assert json.loads((tmp_path / "a.json").read_text()) == found.as_dict()
    assert (tmp_path / "a.csv").read_text().splitlines()[:2] == ["layer,head,share_of_it", "1,0,0.1"]
    assert "<!-- share of it -->" in (tmp_path / "a.svg").read_text()
    assert [*found._repr_mimebundle_()] == ["text/html", "image/png", "text/plain"]


def test_findings_of_steps_are_one_with_the_axis_step_first() -> None:
    found = stack([fifth(step, 1 / step) for step in (1, 2, 4)], {"run": "runs/a", "text": "a"})
    assert (found["loss"].axes, found["loss"].values.tolist()) == (("step",), [1, 0.5, 0.25])
    assert found["share_of_it"].at(step=2, layer=4, head=0).values == 0.4
    steps = found.as_dict()["steps"]
    assert [(at["step"], at["loss"], len(at["heads"])) for at in steps] == [(1, 1, 6), (2, 0.5, 6), (4, 0.25, 6)]
    assert found.as_csv().decode().splitlines()[7] == "2,0.5,1,0,0.1"
    rows = table_by_step(stack([fifth(step) for step in range(40)], {}), ["head"], lambda at: ["x"])
    assert [len(rows), rows[1], rows[-1]] == [21, ("0", "x"), ("39", "x")]


def test_a_cell_has_its_error_its_sign_and_no_negative_zero() -> None:
    assert [cell(0.12345, 0.5, 3), cell(-0.001), cell(NAN), cell(None, 1.0), cell(1234.5, NAN, 1)] == [
        "0.123 ±0.500", "0.00", "-", "-", "1,234.5",
    ]  # fmt: skip
    assert cell(0.5, sign="+") == "+0.50"


def test_colours_go_at_least_so_far_that_noise_stays_pale() -> None:
    def ends(scale: Any, *values: float) -> tuple[float, float]:
        return Figure("a", {"layer": range(len(values))}, np.array(values), scale=scale).ends

    assert ends("change", 0.0003, -0.0001) == (-0.01, 0.01)
    assert ends("change", 0.25, -0.5, NAN) == (-0.5, 0.5)
    assert ends("signed share", 0.25) == (-1, 1)
    assert [ends("share", 0.25), ends("share", 1.5)] == [(0, 1), (0, 1.5)]
    assert ends("amount", 0.25) == (0, 0.25)


def test_a_map_has_the_labels_of_its_axes_and_a_single_axis_is_a_column() -> None:
    found = heat_map(FIGURE, names={"head": ["a", "b", "c"]})
    assert (found.title, found.rows, found.columns, found.decimals) == ("share of it", ["L1", "L4"], ["a", "b", "c"], 3)
    column = heat_map(FIGURE.at(head=0), "title")
    assert (column.title, column.numbers.tolist(), column.axis_labels) == ("title", [[0.1], [0.4]], ("layer", ""))


def test_lines_without_a_name_lie_below_the_others() -> None:
    steps = Figure("a", {"step": (1, 2), "place": ("x", "y", "z")}, np.arange(6.0).reshape(2, 3))
    found = named_curves(steps, "title", {"z": {"color": "red"}, "x": {}}, (0, 1))
    assert [(line.label, line.values.tolist()) for line in found.lines] == [("", [1, 4]), ("z", [2, 5]), ("x", [0, 3])]


def read_back(row: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(FifthFinding, "csv_rows", lambda _: [row])
    (found,) = csv.DictReader(io.StringIO(fifth().as_csv().decode()))
    return found


def test_tokens_have_columns_of_their_own_in_csv(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"layer": 0, "head": 1, "raises": [{"token": ' "a", b\n', "id": 7, "logit": -1.5}, {"token": "今", "id": 8}]}
    found = read_back(row, monkeypatch)
    assert (found["raises_1_token"], found["raises_1_id"], found["raises_1_logit"]) == (' "a", b\n', "7", "-1.5")
    assert found["raises_2_token"] == "今"


def test_a_token_never_becomes_a_formula_of_a_spreadsheet(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\n=1", "＝1", "a=1", "\r", ""]
    found = read_back({"layer": 0, "raises": [{"token": token} for token in tokens]}, monkeypatch)
    cells = [found[f"raises_{number}_token"] for number in range(1, 11)]
    assert cells == [f"'{token}" for token in tokens[:7]] + tokens[7:]


def test_xarray_gets_every_figure_with_its_labels(smoke_run: Path) -> None:
    pytest.importorskip("xarray")
    found = gpt_cli.heads("The value of it", run=smoke_run, ablate="zero").to_xarray()
    assert found["loss_change"].dims == ("layer", "head")
    assert found["induction"].sel(layer=1, head=0) == found["induction"].values[1, 0]
    assert {"loss", "loss_change_error"} <= {*found}
    pair: dict[str, Any] = {"clean": "The value of", "corrupt": "The name of", "answer": " the", "against": " a"}
    steps = gpt_cli.patch(**pair, run=smoke_run, over_training=True).to_xarray()
    assert steps["recovered"].dims == ("step", "part", "layer", "position")
    assert steps["recovered"].sel(step=20, part="H1", layer=0).shape == (4,)
    compared = gpt_cli.compare([smoke_run, smoke_run], max_tokens=200).to_xarray()
    assert compared["weight_change"].sel(part="norms").shape == (2,)
