"""A report on heads as rows, as CSV, in the terminal and as panels, of one model and by step."""

import csv
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

from gpt_cli.attention_maps.head_metrics import COLUMNS, LOSS_CHANGE, SHARES
from gpt_cli.attention_maps.snapshots import Snapshot, Steps
from gpt_cli.common.drawing.panels import Curves
from gpt_cli.common.language import chinese
from gpt_cli.tools.interpret.figure import Figure
from gpt_cli.tools.interpret.finding import Finding, stack
from gpt_cli.tools.interpret.heads.view import HeadsFinding, head_figures, labels_of
from gpt_cli.tools.interpret.over_training import history_of

NAN = np.nan
LOSSES = {"loss": [(1, 3.0), (5, 2.0)], "validation_loss": [(5, 2.25)]}


def finding(*more: Figure, sort: str | None = None, texts: Any = None, tokens: int = 640, **columns: Any) -> Finding:
    """Scores of layer 3 with heads 0 and 11; 0.25 in columns that are not named."""
    scores = {name: np.array([columns.get(name, [0.25, 0.25])]) for name in COLUMNS}
    rows = [label | text for label, text in zip(labels_of(scores, tokens), texts or [{}, {}], strict=True)]
    about = {"checkpoint": "runs/a/checkpoints/best.safetensors", "step": 1, "text": "The", "tokens": tokens}
    return HeadsFinding(about, (*head_figures(scores, (3,), (0, 11)), *more), {"heads": rows}, sort=sort)


def change(*values: float, errors: Any = None, layer: bool = False) -> tuple[Figure, Figure]:
    places: Any = {"layer": (3,)} if layer else {"layer": (3,), "head": (0, 11)}
    shape = 1 if layer else (1, 2)
    numbers, wrong = (np.array(part).reshape(shape) for part in (values, errors or [NAN] * len(values)))
    return Figure(LOSS_CHANGE, places, numbers, wrong, "nats", "change"), Figure("loss", {}, np.array(3.0))


def test_rows_are_sorted_by_a_column_with_the_unknown_last() -> None:
    assert [row["head"] for row in finding(self=[0.5, 0.75], sort="self").heads] == [11, 0]
    assert [row["head"] for row in finding(self=[NAN, 0.0], sort="self").heads] == [11, 0]
    assert [row["head"] for row in finding(*change(0.25, 0.5), sort=LOSS_CHANGE).heads] == [11, 0]


def parsed(content: bytes) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(content.decode()))]


def test_a_line_of_csv_has_the_values_of_a_row_and_what_its_layer_is_worth() -> None:
    found = parsed(finding(*change(0.5, layer=True), entropy=[1.5, 2.5], duplicate_token=[NAN, 0.5]).as_csv())
    assert [*found[0]][:10] == ["layer", "head", *COLUMNS, "label"]
    assert [line["entropy"] for line in found] == ["1.5", "2.5"]
    assert [line["duplicate_token"] for line in found] == ["", "0.5"]
    assert [line["label"] for line in found] == ["", "duplicate token"]
    assert [line["layer_loss_change"] for line in found] == ["0.5", "0.5"]
    assert found[0]["layer_loss_change_error"] == ""


def test_numbers_stand_below_each_other() -> None:
    found = finding(mean_distance=[7.04, 123.4], duplicate_token=[NAN, 0.25], self=[0.25, 0.5])
    assert found.as_text().splitlines() == [
        "head    entr  dist  first  prev  self   dup   ind  label",
        "L3 H0   0.25   7.0   0.25  0.25  0.25     -  0.25",
        "L3 H11  0.25   123   0.25  0.25  0.50  0.25  0.25  self",
    ]


def test_a_change_has_its_sign_and_its_error_where_there_is_one() -> None:
    found = finding(*change(0.01234, -0.5, errors=[0.00056, NAN]), previous_token=[0.75, 0.25])
    first, second = found.as_text().splitlines()[1:]
    assert first.endswith("0.25  +0.0123 ±0.0006  previous")
    assert second.endswith("0.25          -0.5000")


def test_the_widest_table_of_a_gpt2_has_80_columns() -> None:
    wide: dict[str, Any] = {"entropy": [6.93] * 2, "mean_distance": [1023.4] * 2, "duplicate_token": [0.9] * 2}
    found = finding(*change(-0.1234, 0.5, errors=[0.5, 0.5]), **wide)
    assert max(map(cell_len, [*found.as_text().splitlines(), *found.legend()])) <= 80


def test_whole_layers_have_a_table_of_their_own() -> None:
    _, _, second = finding(*change(1.5, errors=[0.25], layer=True)).as_text().partition("\n\n")
    assert second.splitlines() == ["layer  loss change", "3      +1.5000 ±0.2500"]


def raises(*tokens: str) -> list[dict[str, Any]]:
    return [{"token": token, "id": number, "logit": 1.5 - number} for number, token in enumerate(tokens)]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, '"今天" +1.50  " is" +0.50  "↵" -0.50'),
        (35, '"今天" +1.50  " is" +0.50'),
        (32, '"今天" +1.50'),  # wide characters count as two
        (5, '"今天" +1.50'),
    ],
)
def test_as_many_raised_tokens_as_fit_stand_in_quotes(width: int, shown: str) -> None:
    found = finding(texts=[{"raises": raises("今天", " is", "\n")}] * 2)
    found = replace(found, about={**found.about, "query": {"position": 4, "token": " the"}})
    _, _, second = found.as_text(width).partition("\n\n")
    assert second.splitlines()[0::2] == ['head    raised most at token 4, " the"', f"L3 H11  {shown}"]


def test_a_picture_has_a_map_for_each_column_and_every_word_has_chinese() -> None:
    titles = [panel.title for made in (change(1.0, 2.0), change(1.0, layer=True)) for panel in panels(finding(*made))]
    assert titles[:8] == [
        "entropy (nats)", "mean distance (tokens)", "first token", "previous token", "self", "duplicate token",
        "induction", "loss change without it (nats)",
    ]  # fmt: skip
    words = [*titles, "loss (nats/token)", "step", "training", "validation", "this prompt"]
    assert [word for word in words if chinese().find(word) is None] == []


def panels(found: Finding) -> list[Any]:
    return [*found.panels()]


def a_snapshot(step: int, shift: float = 0) -> Snapshot:
    """Head L1 H2 has the highest score in each column; duplicates were not measured."""
    scores = np.arange(6.0).reshape(2, 3) / 10
    columns = {name: (scores + shift * place) % 0.6 for place, name in enumerate(COLUMNS)}
    columns["duplicate_token"] = np.full((2, 3), NAN)
    return Snapshot(step, 4.0 - step / 2, "a b", (1, 2), ("a", "b"), np.zeros((2, 3, 2, 2)), columns)


def history(
    *snapshots: Snapshot, losses: Any = LOSSES, layers: Any = (0, 1), heads: Any = (0, 2), sort: str | None = None
) -> Finding:
    steps = Steps("runs/a", snapshots[-1], len(snapshots), lambda every: iter(snapshots[::every]), losses)
    return history_of(steps, layers, heads, sort)


def test_by_step_a_kind_of_attention_that_was_not_measured_has_a_dash() -> None:
    row = history(a_snapshot(1)).as_text().splitlines()[1]
    assert row.split() == ["1", "3.500", *["L1", "H2", "0.50"] * 2, "-", *["L1", "H2", "0.50"] * 2]


def test_rows_of_csv_have_the_same_cells_with_and_without_an_evaluation() -> None:
    assert history(a_snapshot(1), a_snapshot(5), layers=(0,), heads=(1,)).as_csv().decode().splitlines() == [
        "step,loss,validation_loss,layer,head,entropy,mean_distance,first_token,previous_token,self,duplicate_token,induction,label",
        '1,3.5,"",0,1,0.1,0.1,0.1,0.1,0.1,"",0.1,""',
        '5,1.5,2.25,0,1,0.1,0.1,0.1,0.1,0.1,"",0.1,""',
    ]


def test_by_step_a_colour_belongs_to_a_head_in_all_panels_of_shares_that_were_measured() -> None:
    """Each share has another order of the heads, of which the first three are named."""
    loss, *shares = panels(history(a_snapshot(1, 0.1), a_snapshot(5, 0.1), heads=(0, 1, 2)))
    assert [line.label for line in loss.lines] == ["training", "validation"]
    assert [panel.title for panel in shares] == [name.replace("_", " ") for name in SHARES if name != "duplicate_token"]
    lines = [line for panel in shares for line in panel.lines if line.label]
    pairs = {(line.label, (*line.style.values(),)) for line in lines}
    assert len(pairs) == len(dict(pairs)) == 6, "one for each head"
    assert len({stroke for _, stroke in pairs}) == 6, "of its own"
    assert all(isinstance(panel, Curves) and len([each for each in panel.lines if each.label]) == 3 for panel in shares)


def test_by_step_the_peaks_of_passages_are_in_brackets_or_in_colour() -> None:
    passage = {"tokens": ["a", "b"], "peak": 1, "value": 2.0, "place": 0}
    rows = [{"layer": 3, "head": 1, "mean_size": 1.0, "passages": [passage]}]
    ratio = Figure("ratio", {"layer": (3,), "head": (1,)}, np.array([[2.0]]))
    found = stack([HeadsFinding({"step": 5}, (ratio,))], {"run": "runs/a", "tokens": 2}, {"heads": rows})
    assert "a[[b]]" in found.as_text()
    assert "a\033[30;43mb\033[0m" in found.as_coloured_text()


def test_without_metrics_the_loss_is_that_of_the_prompt_or_of_batches() -> None:
    of_prompt, of_batches = (
        panels(history(a_snapshot(1), losses=losses))[0] for losses in (None, {**LOSSES, "loss": []})
    )
    assert [(line.label, line.values) for line in of_prompt.lines] == [("this prompt", (3.5,))]
    assert [(line.label, line.values) for line in of_batches.lines] == [("training", (3.5,))]
