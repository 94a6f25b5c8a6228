"""Cells of CSV."""

from __future__ import annotations

import pytest

from gpt_cli.inspecting.cells import inert


@pytest.mark.parametrize("text", ["=1+1", "+1", "-x", "@SUM(A1)", "\t=1", "\r\n=1", "＝1+1", "=="])
def test_what_a_spreadsheet_would_compute_begins_with_an_apostrophe(text: str) -> None:
    assert inert(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "=", "-", "\n", "\r\n", "\n    a", " the", " = 1", "a=1", "'", "今"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert inert(text) == text
