from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpt_cli.attention_maps import picture
from gpt_cli.checkpoints.load import load
from gpt_cli.tools.explain import studies
from gpt_cli.tools.explain.plots import plot

MAKERS = {
    "scaling": lambda: studies.scaling(None),
    "mask": studies.mask,
    "dropout": studies.dropout,
    "padding": studies.padding,
}


@pytest.mark.parametrize("study", MAKERS)
def test_a_study_is_drawn_with_its_numbers(study: str) -> None:
    explanation = MAKERS[study]()
    svg = plot(study, explanation, "en", kind="svg", notice=print).decode()
    if study == "scaling":
        for name in ("entropy", "undivided", "divided"):
            assert f"<!-- {name} -->" in svg
        for number in explanation.steps[-1].numbers.flat:
            assert f"<!-- {number:.3g} -->" in svg
    else:
        for step in explanation.steps:
            for number in step.numbers.flat:
                assert f"<!-- {number:.2f} -->" in svg or f"<!-- {number:.4f} -->" in svg
    assert svg == plot(study, explanation, "en", kind="svg", notice=print).decode()


def test_the_path_of_a_run_is_no_formula_and_has_a_font(copied: Path) -> None:
    os.rename(copied, "runs/a$\\frac$b模")
    explanation = studies.scaling(load("runs/a$\\frac$b模"))
    assert "a$\\frac$b模" in explanation.steps[1].title
    said: list[str] = []
    plot("scaling", explanation, "en", kind="svg", notice=said.append)  # warnings are errors
    assert all("模" in line for line in said)  # where no font has it


def test_without_a_font_the_picture_is_in_english_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture.font_manager, "findSystemFonts", list)
    said: list[str] = []
    svg = plot("mask", studies.mask(), "zh", kind="svg", notice=said.append).decode()
    assert "<!-- renormalised -->" in svg
    wrong = "no installed font has Chinese characters, so the picture is in English"
    assert said == [f"{wrong} (Debian: apt install fonts-noto-cjk)"]
