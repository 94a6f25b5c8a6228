"""Tokens as labels and cells, weights as colours."""

import matplotlib
import numpy as np
import pytest

from gpt_cli.common.drawing.token_labels import colour_of, inert_cell, label_of


def test_labels_show_what_cannot_be_seen() -> None:
    labels = [label_of(token) for token in (" the", "\n", "  ", "\t", "", "a\x07", "abcdefghijklmnop", " a\n", "\r")]
    assert labels == [" the", "↵", "␣␣", "⇥", "∅", "a\\x07", "abcdefghijk…", " a↵", "\\x0d"]
    assert label_of("\u0301") == "◌\u0301", "on a circle"
    cat = "🐈\u200d⬛"
    assert [label_of(cat), label_of(cat, 7), label_of(cat, 8)] == ["🐈\\u200d⬛", "🐈…", "🐈\\u200d⬛"]


def parts_of(colour: str) -> list[int]:
    return [*bytes.fromhex(colour.removeprefix("#"))]


def test_the_colours_are_those_of_the_pictures() -> None:
    viridis = matplotlib.colormaps["viridis"]
    for weight in np.linspace(0, 1, 1001):
        np.testing.assert_allclose(parts_of(colour_of(weight)), 255 * np.array(viridis(np.sqrt(weight))[:3]), atol=6)


def test_more_weight_is_lighter_in_grey_too() -> None:
    greys = [np.dot((0.2126, 0.7152, 0.0722), parts_of(colour_of(weight))) for weight in np.linspace(0, 1, 101) ** 2]
    assert (np.diff(greys) > 0).all()


@pytest.mark.parametrize("text", ["=1+1", "+1", "-x", "@SUM(A1)", "\t=1", "\r\n=1", "＝1+1", "=="])
def test_what_a_spreadsheet_would_compute_begins_with_an_apostrophe(text: str) -> None:
    assert inert_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "=", "-", "\n", "\r\n", "\n    a", " the", " = 1", "a=1", "'", "今"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert inert_cell(text) == text
