"""The history of heads as numbers and as a picture."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.image import imread

from gpt_cli.attention_maps.head_metrics import COLUMNS, SHARES, HeadScores
from gpt_cli.attention_maps.snapshots import Snapshot
from gpt_cli.common.drawing import fonts
from gpt_cli.common.language import chinese
from gpt_cli.tools.interpret.heads import picture
from gpt_cli.tools.interpret.heads.history import history_of, strongest
from gpt_cli.tools.interpret.heads.picture import draw_history

NO_LOSSES: dict[str, list[tuple[int, float]]] = {"loss": [], "validation_loss": []}
LOSSES = {"loss": [(1, 3.0), (5, 2.0)], "validation_loss": [(5, 2.25)]}


def a_snapshot(step: int, prompt: str = "a b") -> Snapshot:
    """Head L1 H2 has the highest score in each column; duplicates were not measured."""
    columns = {name: np.arange(6.0).reshape(2, 3) / 10 for name in COLUMNS}
    columns["duplicate_token"] = np.full((2, 3), np.nan)
    return Snapshot(
        step, 4.0 - step / 2, prompt, (1, 2), ("a", "b"), np.zeros((2, 3, 2, 2)), HeadScores((0, 1), (0, 1, 2), columns)
    )


def test_a_step_has_its_loss_its_validation_loss_and_the_chosen_heads() -> None:
    found = history_of("runs/a", [a_snapshot(1), a_snapshot(5)], LOSSES, [1], [0, 2], "induction")
    first, last = found.steps
    assert (first["step"], first["loss"], "validation_loss" in first) == (1, 3.5, False)
    assert (last["step"], last["loss"], last["validation_loss"]) == (5, 1.5, 2.25)
    assert [(row["layer"], row["head"], row["induction"]) for row in last["heads"]] == [(1, 2, 0.5), (1, 0, 0.3)]
    best = strongest(last["heads"], "self")
    assert best is not None
    assert best["head"] == 2
    assert strongest(last["heads"], "duplicate_token") is None


def test_rows_of_csv_have_the_same_cells_with_and_without_an_evaluation() -> None:
    content = history_of("a", [a_snapshot(1), a_snapshot(5)], LOSSES, [0], [1]).as_csv().decode()
    assert content.splitlines() == [
        "step,loss,validation_loss,layer,head,entropy,mean_distance,first_token,previous_token,self,duplicate_token,induction,label",
        '1,3.5,"",0,1,0.1,0.1,0.1,0.1,0.1,"",0.1,""',
        '5,1.5,2.25,0,1,0.1,0.1,0.1,0.1,0.1,"",0.1,""',
    ]


def test_a_share_that_was_not_measured_has_no_panel() -> None:
    snapshots = [a_snapshot(1), a_snapshot(5)]
    pictures = [
        imread(io.BytesIO(draw_history(history_of("a", found, LOSSES, [0, 1], [0, 1, 2]).as_dict(), LOSSES)))
        for found in (snapshots, snapshots[:1])
    ]
    assert pictures[0].shape == pictures[1].shape  # a single snapshot is drawn too
    height, width, _ = pictures[0].shape
    assert height == pytest.approx(110 * (1.35 * (1.4 + 4) + 0.8), abs=1)
    assert width == 825


def test_a_colour_belongs_to_a_head_in_all_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each share has another order of the six heads, of which the first three are named."""
    snapshot = a_snapshot(1)
    columns = {name: (snapshot.scores.columns["self"] + place / 10) % 0.6 + 0.1 for place, name in enumerate(COLUMNS)}
    mixed = replace(snapshot, scores=HeadScores((0, 1), (0, 1, 2), columns))
    drawn: list[dict[str, dict[str, str]]] = []
    monkeypatch.setattr(picture, "draw_lines", lambda _axes, _steps, _lines, named: drawn.append(named))
    draw_history(history_of("a", [mixed], LOSSES, [0, 1], [0, 1, 2]).as_dict(), LOSSES)
    assert len(drawn) == 5
    pairs = {(head, (*style.values(),)) for named in drawn for head, style in named.items()}
    assert len(pairs) == len(dict(pairs)) == 6, "one for each head"
    assert len({stroke for _, stroke in pairs}) == 6, "of its own"


def test_every_word_of_the_picture_has_chinese() -> None:
    for word in [
        *(name.replace("_", " ") for name in SHARES),
        "loss (nats/token)",
        "step",
        "training",
        "validation",
        "this prompt",
    ]:
        assert chinese().find(word) is not None


def test_a_picture_without_metrics_or_a_font_is_drawn_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts.font_manager, "findSystemFonts", list)
    said: list[str] = []
    history = history_of("a", [a_snapshot(1, "今 $x$")], NO_LOSSES, [0], [0])
    assert draw_history(history.as_dict(), NO_LOSSES, said.append)
    assert draw_history(history.as_dict(), None) != draw_history(history.as_dict(), NO_LOSSES), "the loss of the prompt"
    assert said == ["no installed font has the characters 今 (Debian: apt install fonts-noto-cjk)"]
