"""Passages and circuits in the width of a terminal."""

from typing import Any

import pytest
from rich.cells import cell_len

from gpt_cli.tools.interpret.heads.writers import BRACKETS, marked, of_directions, shown_peak


def passage(tokens: list[str], peak: int) -> dict[str, Any]:
    return {"tokens": tokens, "peak": peak}


@pytest.mark.parametrize("width", [20, 33, 60, 200])
@pytest.mark.parametrize("tokens", [["a value "] * 25, ["今天天气"] * 25, ["x" * 90, "今", "\n" * 30]])
def test_a_passage_is_cut_around_its_peak(tokens: list[str], width: int) -> None:
    for peak in range(len(tokens)):
        line = marked(passage(tokens, peak), width, BRACKETS)
        assert cell_len(line) <= width
        assert line.count("[[") == line.count("]]") == 1
        assert "\n" not in line


def test_a_short_passage_is_whole_and_spaces_are_joined() -> None:
    assert marked(passage(["The", "    ", "\n", " end"], 3), 60, BRACKETS) == "The ↵[[ end]]"
    assert marked(passage(["a", "b"], 0), 60, ("<", ">")) == "<a>b"


def test_a_peak_within_a_character_is_shown_at_its_first_token() -> None:
    assert shown_peak(passage(["a", "今", "", ""], 3)) == 1
    assert shown_peak(passage(["", "a"], 0)) == 0
    assert marked(passage(["a", "今", "", "", "b"], 2), 60, BRACKETS) == "a[[今]]b"


def test_directions_have_as_many_tokens_as_fit() -> None:
    part = {"reads": ["今天" * 3] * 5, "writes": ["ab"] * 5, "queries": ["a"] * 5, "keys": ["b"] * 5}
    part |= {"singular_value": 1.5}
    ov, qk = of_directions([{"layer": 0, "head": 1, "ov": [part], "qk": [part]}], 59)
    assert ov[1] == ("L0 H1", "1.5", '"今天今天今天"', '"ab" "ab" "ab" "ab"')
    assert qk[0] == ("head", "QK", "queries", "keys")
    assert qk[1][2] == '"a" "a" "a" "a" "a"'
