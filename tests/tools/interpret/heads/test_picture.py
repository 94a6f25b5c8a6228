"""A report on heads as a picture."""

from __future__ import annotations

import io
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from gpt_cli.attention_maps.head_metrics import COLUMNS
from gpt_cli.common.drawing import panels as drawn
from gpt_cli.common.drawing.fonts import fonts_for
from gpt_cli.common.drawing.panels import HeatMap
from gpt_cli.common.language import chinese
from gpt_cli.tools.interpret.heads import picture
from gpt_cli.tools.interpret.heads.picture import draw_report

pytestmark = pytest.mark.slow


def report(num_layers: int, num_heads: int, **more: Any) -> dict[str, Any]:
    """One in which every score of layer i and head j is (i + j) / 10."""
    rows = [
        {"layer": i, "head": j, **dict.fromkeys(COLUMNS, (i + j) / 10), "label": None}
        for i in range(num_layers)
        for j in range(num_heads)
    ]
    return {"checkpoint": "runs/a.safetensors", "step": 7, "text": "a $text", "tokens": 9, "heads": rows} | more


def pixels(png: bytes) -> np.ndarray:
    return matplotlib.image.imread(io.BytesIO(png))[..., :3]


def panels(found: dict[str, Any], layers: list[int], heads: list[int]) -> dict[str, HeatMap]:
    return {panel.title: panel for panel in picture._panels(found, layers, heads)}


def test_more_heads_make_a_larger_picture() -> None:
    few, many = (pixels(draw_report(report(*size))) for size in ((1, 1), (6, 6)))
    assert (np.array(many.shape) >= few.shape).all()
    assert many.size > few.size


def test_the_same_report_gives_the_same_bytes() -> None:
    assert draw_report(report(2, 2)) == draw_report(report(2, 2))


def test_every_column_has_a_map_in_the_place_of_its_head_whatever_the_order_of_rows() -> None:
    found = report(2, 3)
    found["heads"].reverse()
    maps = panels(found, [0, 1], [0, 1, 2])
    assert [*maps] == [
        "entropy (nats)",
        "mean distance (tokens)",
        "first token",
        "previous token",
        "self",
        "duplicate token",
        "induction",
    ]
    assert maps["self"].numbers.tolist() == [[0, 0.1, 0.2], [0.1, 0.2, 0.3]]


def test_scales_are_those_of_the_quantity() -> None:
    found = report(2, 3)
    for row in found["heads"]:
        row |= {"loss_change": row["self"] - 0.25, "loss_change_error": 0.5}
    found["layers"] = [{"layer": n, "loss_change": 2.0 * n, "loss_change_error": None} for n in (0, 1)]
    maps = panels(found, [0, 1], [0, 1, 2])
    ends = {title: (panel.low, panel.high) for title, panel in maps.items()}
    assert ends["induction"] == (0, 1)
    assert ends["entropy (nats)"] == (0, pytest.approx(0.3))
    assert ends["loss change without it (nats)"] == (-0.25, 0.25)
    assert ends["loss change without the layer (nats)"] == (-2, 2)
    for row in found["heads"]:
        row["loss_change"] = 0.0003
    assert panels(found, [0, 1], [0, 1, 2])["loss change without it (nats)"].high == 0.01, "noise stays pale"
    assert maps["loss change without the layer (nats)"].numbers.tolist() == [[0], [2]]


def test_a_cell_without_a_number_is_grey() -> None:
    found = report(2, 2)
    grey = np.array([204, 204, 204]) / 255

    def count() -> int:
        return int((np.abs(pixels(draw_report(found)) - grey).max(-1) < 0.001).sum())

    before = count()
    found["heads"][3]["induction"] = None
    assert count() - before > 500
    for row in found["heads"]:
        row["duplicate_token"] = None
    assert count() - before > 3000


def test_few_heads_have_their_numbers() -> None:
    assert [drawn._short(number, 2) for number in (0.123, 1.234, 12.34, 0.0, 0.999)] == [
        ".12", "1.2", "12", ".00", "1.00",
    ]  # fmt: skip
    assert [drawn._short(number, 3) for number in (-0.0123, -0.0001)] == ["-.012", ".000"]


def test_the_foot_names_a_text_of_any_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(drawn, "find_fonts", lambda characters: (["DejaVu Sans"], {"今"} & characters))
    assert draw_report(report(1, 1, text=["今.txt", "b\n.txt"]), lines.append)
    assert lines == ["no installed font has the characters 今 (Debian: apt install fonts-noto-cjk)"]
    assert draw_report(report(1, 1), lines.append)
    assert len(lines) == 1


def test_every_word_of_the_picture_has_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    found = report(2, 2, layers=[{"layer": n, "loss_change": 1.0, "loss_change_error": 0.5} for n in (0, 1)])
    for row in found["heads"]:
        row |= {"loss_change": 0.5, "loss_change_error": 0.5}
    assert [title for title in panels(found, [0, 1], [0, 1]) if chinese().find(title) is None] == []
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    if fonts_for("zh", lambda _: None)[1] == "en":
        pytest.skip("no font with Chinese characters is installed")
    svg = draw_report(found, kind="svg").decode()
    assert {f"<!-- {word} -->" in svg for word in ("归纳", "层", "头", "±：一个标准误")} == {True}
    assert "<!-- runs/a.safetensors，第 7 步 -->" in svg
