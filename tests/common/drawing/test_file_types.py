"""The ending of a file that a report writes, and the hint for one that it does not write."""

from pathlib import Path

import pytest

from gpt_cli.common.drawing.file_types import PICTURES, REPORTS, ending_of
from gpt_cli.errors import UsageError


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("a/b c.JPG", "--out 'a/b c.png'"),
        ("a.eps", "--out a.pdf"),
        ("a.tsv", "--out a.csv"),
        ("a.txt", "--out a.json"),
        ("figure", "--out figure.json"),
        ("-", "--json has the figures"),
        ("a.html", "gpt report"),
    ],
)
def test_a_wrong_ending_is_one_sentence_and_a_name_that_works(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        ending_of(Path(name), REPORTS, {".html": "gpt report"})
    wrong = f'error: --out: "{Path(name).name}" ends in none of .json, .csv, .png, .svg, .pdf'
    assert raised.value.lines() == [wrong, f"hint: {hint}"]


def test_capitals_do_not_matter() -> None:
    assert [ending_of(Path(f"a{ending.upper()}"), PICTURES) for ending in PICTURES] == [*PICTURES]
