"""Pictures of panels: which way layers grow, errors, sizes, words, and files of every kind."""

import io
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from gpt_cli.common.drawing import canvas
from gpt_cli.common.drawing import draw_panels as drawing
from gpt_cli.common.drawing.canvas import Figure, fonts_for
from gpt_cli.common.drawing.draw_panels import BANDS, BARS, CELLS, GREY, draw_lines, draw_map, draw_panels
from gpt_cli.common.drawing.file_types import PICTURES
from gpt_cli.common.drawing.panels import Curves, HeatMap, PlotLine
from gpt_cli.common.drawing.token_labels import Origin
from gpt_cli.common.language import chinese

ORIGIN = Origin("runs/a", 7, "a $text")
MAP = HeatMap("induction", np.array([[0.1, 0.2], [0.3, np.nan]]), ["L0", "L1"], ["H0", "H1"])
CURVE = Curves("loss (nats)", [PlotLine("training", [0, 1], [1.0, 2.0], [0.5, None])], "layer")


def map_of(rows: int, columns: int, **more: Any) -> HeatMap:
    names = [f"L{n}" for n in range(rows)], [f"H{n}" for n in range(columns)]
    return HeatMap("self", np.add.outer(np.arange(rows), np.arange(columns)) / 10, *names, **more)


def pixels(*panels: Any, beside: int = 1) -> np.ndarray:
    return matplotlib.image.imread(io.BytesIO(draw_panels(ORIGIN, panels, beside=beside)))[..., :3]


@pytest.mark.parametrize("kind", [ending[1:] for ending in PICTURES])
def test_a_picture_of_every_kind_has_the_same_bytes_in_any_style_and_no_date(kind: str) -> None:
    found = draw_panels(ORIGIN, [MAP], kind=kind)
    with matplotlib.rc_context({"text.usetex": True, "savefig.dpi": 300, "axes.facecolor": "black"}):
        assert found == draw_panels(ORIGIN, [MAP], kind=kind)
    assert found.lstrip()[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")
    assert [word for word in (b"Date", b"<dc:date>") if word in found] == []
    assert (b"/FontFile2" in found) == (kind == "pdf")


def test_words_of_a_pdf_are_text_in_fonts_that_it_contains() -> None:
    """TrueType as publishers ask for, above; with Chinese characters Type 3, which holds fonts of every format."""
    if canvas.find_fonts(set("今天"))[1]:
        pytest.skip("no font with Chinese characters is installed")
    assert b"/Subtype /Type3" in draw_panels(Origin("runs/a", 7, "今天"), [MAP], kind="pdf")


def test_layers_grow_downwards_and_the_sides_of_a_map_have_names() -> None:
    svg = draw_panels(ORIGIN, [MAP, CURVE], kind="svg").decode()
    assert {f"<!-- {word} -->" in svg for word in ("layer", "head", BARS, ".10", "“a $text”")} == {True}
    axes: Any = Figure(figsize=(2, 2), dpi=50).subplots()
    draw_map(axes.figure, axes, MAP, set(), "en")
    top, bottom = axes.transData.transform([(0, 0), (0, 1)])[:, 1]
    assert top > bottom


def drawn(shown: Curves) -> Any:
    axes: Any = Figure(figsize=(6, 2), dpi=50).subplots()
    draw_lines(axes, shown, "en")
    return axes


def test_an_error_is_one_standard_error_to_both_sides() -> None:
    (bars,) = drawn(Curves("a", [PlotLine("b", [0, 1, 2], [1.0, None, 3.0], [0.5, None, None])], "layer")).collections
    assert next(segment[:, 1].tolist() for segment in bars.get_segments()) == [0.5, 1.5]
    (band,) = drawn(Curves("a", [PlotLine("b", [0, 1], [1.0, 2.0], [0.25, 0.5])])).collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (0.75, 2.5)
    assert not drawn(Curves("a", [PlotLine("b", [0, 1], [1.0, 2.0])])).collections, "without errors a line alone"


def test_a_picture_says_what_its_errors_are() -> None:
    words = []
    for panel in (CURVE, CURVE._replace(x_label="step"), MAP._replace(errors=np.full((2, 2), 0.5)), MAP):
        svg = draw_panels(ORIGIN, [panel], kind="svg").decode()
        words.append([word for word in (BARS, BANDS, CELLS) if f"<!-- {word} -->" in svg])
    assert words == [[BARS], [BANDS], [CELLS], []]


def test_lines_with_a_name_are_coloured_and_the_others_are_grey() -> None:
    lines = [PlotLine("", [0, 1], [0, 1]), PlotLine("two", [0, 1], [0, 2], style={"color": "red"})]
    axes = drawn(Curves("a", lines))
    assert [line.get_color() for line in axes.lines] == [GREY, "red"]
    two = draw_panels(ORIGIN, [Curves("a", lines), Curves("b", lines)], kind="svg", beside=2).decode()
    assert two.count("<!-- two -->") == 1, "panels with the same names share them"


def test_an_axis_of_steps_has_whole_steps_alone() -> None:
    axes = drawn(Curves("a", [PlotLine("b", [0, 25, 50, 75, 100], [1.0, 2.0, 3.0, 4.0, 5.0])]))
    for ends in ((25, 60), (0, 3)):  # where matplotlib would mark 27.5
        axes.set_xlim(*ends)
        assert all(float(tick).is_integer() for tick in axes.get_xticks())
    assert axes.get_xlabel() == "step"


def test_more_cells_and_panels_make_a_larger_picture() -> None:
    few, many, four = pixels(map_of(1, 1)), pixels(map_of(9, 30)), pixels(*[map_of(1, 1)] * 4, beside=2)
    assert (np.array(many.shape)[:2] > few.shape[:2]).all()
    assert (np.array(four.shape)[:2] > few.shape[:2]).any()


def test_a_cell_without_a_number_is_grey() -> None:
    def count(panel: HeatMap) -> int:
        return int((np.abs(pixels(panel) - 204 / 255).max(-1) < 0.001).sum())

    whole, hole = map_of(2, 2), map_of(2, 2)
    hole.numbers[1, 1] = np.nan
    assert count(hole) - count(whole) > 500


def test_few_cells_have_their_numbers() -> None:
    short = drawing._short
    assert [short(x, 2) for x in (0.123, 1.234, 12.34, 0.0, 0.999)] == [".12", "1.2", "12", ".00", "1.00"]
    assert [short(x, 3) for x in (-0.0123, -0.0001)] == ["-.012", ".000"]
    assert "<!-- .10 -->" not in draw_panels(ORIGIN, [map_of(9, 9)], kind="svg").decode()


@pytest.mark.parametrize("low", [0, -1])
def test_a_number_is_readable_on_every_colour(low: float) -> None:
    """With the contrast of 4.5 that WCAG asks for."""
    axes: Any = Figure().subplots()
    shown = map_of(8, 8)._replace(numbers=np.linspace(low, 1, 64).reshape(8, 8), low=low)
    draw_map(axes.figure, axes, shown, set(), "en")
    (image,) = axes.images
    colours = image.to_rgba(image.get_array())[..., :3].reshape(64, 3)
    ground = ((colours + 0.055) / 1.055) ** 2.4 @ (0.2126, 0.7152, 0.0722)
    ink = [{"black": 0, "white": 1}[text.get_color()] for text in axes.texts]
    assert ((np.maximum(ground, ink) + 0.05) / (np.minimum(ground, ink) + 0.05)).min() > 4.5


def test_the_foot_names_a_text_of_any_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(canvas.font_manager, "findSystemFonts", list)
    assert draw_panels(Origin("runs/a", 7, "今.txt, b\n.txt"), [MAP], lines.append)
    assert lines == ["no installed font has the characters 今 (Debian: apt install fonts-noto-cjk)"]
    assert draw_panels(ORIGIN, [MAP], lines.append)
    assert len(lines) == 1


def test_every_word_of_panels_has_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    words = (BARS, BANDS, CELLS, "layer", "head", "step", "nothing to measure")
    assert [word for word in words if chinese().find(word) is None] == []
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    if fonts_for("zh", lambda _: None)[1] == "en":
        pytest.skip("no font with Chinese characters is installed")
    svg = draw_panels(ORIGIN, [MAP._replace(errors=np.full((2, 2), 0.5))], kind="svg").decode()
    assert {f"<!-- {word} -->" in svg for word in ("归纳", "层", "头", "±：一个标准误", "runs/a，第 7 步")} == {True}
