"""Panels of pictures: which way layers grow, errors, and files of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpt_cli.common.drawing import fonts
from gpt_cli.common.drawing.canvas import Figure, new_figure
from gpt_cli.common.drawing.file_types import PICTURES
from gpt_cli.common.drawing.panels import (
    BANDS,
    BARS,
    CELLS,
    GREY,
    HeatMap,
    draw_curve,
    draw_lines,
    draw_map,
    draw_panels,
    label_steps,
)
from gpt_cli.common.drawing.token_labels import Origin
from gpt_cli.common.language import chinese

ORIGIN = Origin("runs/a", 7, "a text")
MAP = HeatMap("induction", np.array([[0.1, 0.2], [0.3, np.nan]]), ["L0", "L1"], ["H0", "H1"])


def picture(kind: str, origin: Origin = ORIGIN) -> bytes:
    def draw_all(figure: Figure, missing: set[str], spoken: str) -> None:
        above, below = figure.subplots(2, 1)
        draw_map(figure, above, MAP, missing, spoken)
        draw_curve(below, [0, 1], [1.0, 2.0], [0.5, None])

    return draw_panels(origin, (3, 4), draw_all, print, kind, errors=BARS)


@pytest.mark.parametrize("kind", [ending[1:] for ending in PICTURES])
def test_a_picture_of_every_kind_has_the_same_bytes_twice_and_no_date(kind: str) -> None:
    found = picture(kind)
    assert found == picture(kind)
    assert found.lstrip()[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")
    assert [word for word in (b"Date", b"<dc:date>") if word in found] == []


@pytest.mark.parametrize(("prompt", "kind"), [("a text", b"/FontFile2"), ("今天", b"/Subtype /Type3")])
def test_words_of_a_pdf_are_text_in_fonts_that_it_contains(prompt: str, kind: bytes) -> None:
    """TrueType as publishers ask for; with Chinese characters Type 3, which holds fonts of every format."""
    if fonts.find_fonts(set(prompt))[1]:
        pytest.skip("no font with Chinese characters is installed")
    assert kind in picture("pdf", Origin("runs/a", 7, prompt))


def test_layers_grow_downwards_and_the_sides_of_a_map_have_names() -> None:
    svg = picture("svg").decode()
    assert {f"<!-- {word} -->" in svg for word in ("layer", "head", BARS, ".10", "a text".join("“”"))} == {True}
    axes: Any = new_figure(2, 2, 50).subplots()
    draw_map(axes.figure, axes, MAP, set(), "en")
    top, bottom = axes.transData.transform([(0, 0), (0, 1)])[:, 1]
    assert top > bottom


def test_an_error_is_one_standard_error_to_both_sides() -> None:
    axes: Any = new_figure(2, 2, 50).subplots()
    draw_curve(axes, [0, 1, 2], [1.0, None, 3.0], [0.5, None, None])
    (bars,) = axes.collections
    assert next(segment[:, 1].tolist() for segment in bars.get_segments()) == [0.5, 1.5]
    draw_curve(axes, [0, 1], [1.0, 2.0], [0.25, 0.5], band=True)
    heights = axes.collections[-1].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (0.75, 2.5)
    draw_curve(axes, [0, 1], [1.0, 2.0])
    assert len(axes.collections) == 2, "without errors a line alone"


def test_every_word_of_panels_has_chinese() -> None:
    words = (BARS, BANDS, CELLS, "layer", "head", "nothing to measure")
    assert [word for word in words if chinese().find(word) is None] == []


def test_lines_with_a_style_are_named_and_the_others_are_grey() -> None:
    axes: Any = new_figure(3, 2, 50).subplots()
    lines = {name: np.array([0.0, height]) for name, height in (("one", 1.0), ("two", 2.0))}
    draw_lines(axes, [0, 1], lines, {"two": {"color": "red"}}, {"two": np.array([0.0, 0.5])})
    assert [line.get_color() for line in axes.lines] == [GREY, "red"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["two"]
    heights = axes.collections[-1].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (0.0, 2.5)


def test_an_axis_of_steps_has_whole_steps_alone() -> None:
    axes: Any = new_figure(6, 2, 50).subplots()
    draw_curve(axes, [0, 25, 50, 75, 100], [1.0, 2.0, 3.0, 4.0, 5.0])
    axes.set_xlim(25, 60)  # where matplotlib would mark 27.5
    label_steps(axes, "en")
    assert axes.get_xlabel() == "step"
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
    axes.set_xlim(0, 3)
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
