import base64
import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest
from support.pages import dump_of

from gpt_cli.attention_maps import file_formats, picture
from gpt_cli.attention_maps.patterns import AttentionDump
from gpt_cli.attention_maps.picture import draw, largest
from gpt_cli.common.drawing import canvas
from gpt_cli.common.drawing.token_labels import Origin


def dump(tokens: list[str], layers: int = 1, heads: int = 1) -> AttentionDump:
    weights = np.tril(np.ones((layers, heads, len(tokens), len(tokens)), np.float32))
    return dump_of(tokens, weights / weights.sum(-1, keepdims=True))


def pixels(png: bytes) -> np.ndarray:
    return matplotlib.image.imread(io.BytesIO(png))


def test_the_diagonal_of_the_first_row_is_the_brightest_and_the_future_is_white() -> None:
    image = pixels(draw(dump([str(i) for i in range(6)])))[..., :3]
    brightest = np.array([253, 231, 37]) / 255  # the upper end of viridis
    with matplotlib.rc_context({"savefig.dpi": 300}):
        assert np.array_equal(image, pixels(draw(dump([str(i) for i in range(6)])))[..., :3])
    found = np.argwhere(np.abs(image - brightest).max(-1) < 0.02)
    assert len(found) > 50
    top, left = found.min(0)
    # right of the first cell lies the future of the first token
    assert np.allclose(image[top + 2, left + 40], 1)


def test_one_head_is_large_and_has_its_numbers() -> None:
    alone, beside = (draw(dump(["a", "b", "c", "d"], 1, heads), kind="svg").decode() for heads in (1, 2))
    for number in ("1.00", ".50", ".33", ".25"):
        assert f"<!-- {number} -->" in alone
        assert f"<!-- {number} -->" not in beside.replace("<!-- 1.00 -->", "", 1)  # which the scale has too
    many = draw(dump([str(i) for i in range(30)]), kind="svg").decode()
    assert "<!-- .50 -->" not in many, "no room for numbers"


def test_one_head_of_many_layers_is_a_strip() -> None:
    def shape(layers: int) -> tuple[int, int]:
        height, width, _ = pixels(draw(dump(["a", "b", "c"], layers))).shape
        return height, width

    four, twelve = shape(4), shape(12)
    assert four[1] > 2 * four[0], "four beside each other"
    assert twelve[0] > 1.5 * four[0], "two rows"
    assert four[1] < twelve[1] < 2 * four[1], "of six"


def test_the_maps_of_a_strip_stand_in_the_order_of_the_layers() -> None:
    strip = dump(["a", "b"], 7)
    shares = np.linspace(0.1, 0.4, 7)  # of what the second token looks at the first, more from layer to layer
    strip.weights[:, 0, 1] = np.stack([shares, 1 - shares], axis=1)
    image = pixels(draw(strip))[..., :3]
    image = image[:, : image.shape[1] - 90]  # without the scale
    viridis = matplotlib.colormaps["viridis"]
    places = [np.argwhere(np.abs(image - viridis(np.sqrt(share))[:3]).max(-1) < 0.004).min(0) for share in shares]
    rows, columns = np.array(places).T
    assert len(set(rows[:4])) == len(set(rows[4:])) == 1
    assert list(columns[:4]) == sorted(set(columns)), "four beside each other"
    assert list(columns[4:]) == list(columns[:3])
    assert rows[4] > rows[0], "the others below"


def test_the_foot_names_checkpoint_step_and_prompt_and_no_text_is_a_formula() -> None:
    origin = Origin("runs/tiny/checkpoints/best.safetensors", 1200, "$\\frac{ The$\nvalue")
    svg = draw(replace(dump(["$x^$", "$\\frac{$"]), origin=origin), kind="svg").decode()
    assert "<!-- $\\frac{$ -->" in svg
    assert "<!-- runs/tiny/checkpoints/best.safetensors, step 1,200 -->" in svg
    assert "<!-- “$\\frac{ The$↵value” -->" in svg


def test_a_long_path_and_a_long_prompt_are_cut_to_the_width_of_the_picture() -> None:
    origin = Origin("far/" * 100 + "best.safetensors", 7, "今天 " * 500)
    svg = draw(replace(dump(["a", "b", "c"]), origin=origin), kind="svg").decode()
    path, prompt = re.findall(r"<!-- (…far.*|“.*) -->", svg)
    assert path.endswith("far/best.safetensors, step 7")
    assert prompt.endswith("…”")
    assert len(path) < 70 > 2 * prompt.count("今")


def test_without_a_font_ids_are_shown_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canvas.font_manager, "findSystemFonts", list)
    said: list[str] = []
    draw(dump(["今", "a"]), said.append)
    wrong = "no installed font has the characters 今; the picture shows ids instead of these tokens"
    assert said == [f"{wrong} (Debian: apt install fonts-noto-cjk)"]


def test_a_picture_says_its_title_and_step_in_the_language_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    with_origin = replace(dump(["a", "b"]), origin=Origin("runs/a", 1200, "a b"))
    assert "<!-- attention weights: rows look at columns -->" in draw(with_origin, kind="svg").decode()
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    if canvas.fonts_for("zh", lambda _: None)[1] == "en":
        pytest.skip("no font with Chinese characters is installed")
    svg = draw(with_origin, kind="svg").decode()
    assert "<!-- 注意力权重：每一行的 token 看各列的 token -->" in svg
    assert "<!-- runs/a，第 1,200 步 -->" in svg


def test_drawing_logs_nothing_about_fonts(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(picture, "find_fonts", lambda _: (["DejaVu Sans", "Font That Nobody Has"], set()))
    draw(dump(["a", "b"]))
    assert caplog.records == []


def test_of_emoji_alone_in_the_foot_no_id_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canvas.font_manager, "findSystemFonts", list)
    said: list[str] = []
    draw(replace(dump(["<0xF0>", "b"]), origin=Origin("runs/a", 1, "🌞")), said.append)
    assert said == ["pictures cannot show coloured characters such as 🌞"]


def test_single_characters_and_chinese_are_upright_below_a_column_and_words_are_turned() -> None:
    svg = draw(dump(["天", "天气", "a", "be"]), kind="svg").decode()
    if "<!-- 天 -->" not in svg:
        pytest.skip("no font with Chinese characters is installed")
    assert "<!-- 天气 -->" in svg, "at the left of its row"
    assert [len(re.findall(f"<!-- {text} -->", svg)) for text in ("天", "气")] == [3, 1], "one above the other"
    places = [re.findall(f'<!-- {text} -->\\s*<g [^>]*transform="([^"]*)"', svg) for text in ("a", "be")]
    assert [["rotate(-90)" in place for place in found] for found in places] == [[False, False], [True, False]]


def test_a_text_longer_than_a_map_has_dots_keeps_its_lines_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """880 tokens on 443 dots: of 2 x 2 weights the largest is drawn."""
    for module in (picture, file_formats):
        monkeypatch.setattr(module, "DOTS_PER_INCH", 150)
    said: list[str] = []
    long = dump(["a"] * 880, 2)
    long.weights[:] = np.eye(880, k=-7)  # one token wide
    image = pixels(draw(long, said.append))
    assert said == ["the map has fewer pixels than tokens: each pixel shows the largest of 2 x 2 weights"]
    brightest = np.array([253, 231, 37]) / 255
    line = np.abs(image[:, : image.shape[1] - 120, :3] - brightest).max(-1) < 0.02  # without the scale
    assert line.any(axis=1).sum() >= 436, "in every row of dots"


@pytest.mark.parametrize(("each", "kept"), [(1, 3), (2, 2), (3, 1), (4, 1)])
def test_a_dot_shows_the_largest_of_its_weights(each: int, kept: int) -> None:
    weights = np.array([[1, 0, 0], [0.75, 0.25, 0], [0.1, 0.2, 0.7]])
    found = largest(weights, each)
    assert found.shape == (kept, kept)
    assert found[-1].tolist() == {1: [0.1, 0.2, 0.7], 2: [0.2, 0.7]}.get(each, [1])


def test_an_svg_holds_its_labels_as_shapes_and_is_the_same_each_time() -> None:
    one, other = (draw(dump(["a", "b", "c"], 2, 2), kind="svg") for _ in range(2))
    assert one == other
    root = ElementTree.fromstring(one)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert b"<date" not in one
    assert root.findall(".//{http://www.w3.org/2000/svg}text") == []
    # a dot for each weight, so that print stays sharp: two maps of three tokens and a gap each way
    image = root.findall(".//{http://www.w3.org/2000/svg}image")[0]
    png = base64.b64decode(image.get("{http://www.w3.org/1999/xlink}href", "").partition(",")[2])
    assert pixels(png).shape[:2] == (7, 7)
