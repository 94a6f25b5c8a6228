"""The fonts of pictures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpt_cli.inspecting import fonts
from gpt_cli.inspecting.fonts import find_fonts, remark_on_missing


def test_fonts_that_together_have_the_characters_are_found() -> None:
    names, missing = find_fonts(set("今天a↵␣"))
    if missing:
        assert not os.environ.get("CI"), "tests/debian-packages.txt names a font"
        pytest.skip("no font with Chinese characters is installed")
    assert names[0] == "DejaVu Sans"
    lines: list[str] = []
    remark_on_missing(missing, lines.append)
    assert lines == []


def test_a_damaged_font_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "noto-cjk.ttf").write_bytes(b"not a font")
    monkeypatch.setattr(fonts.font_manager, "findSystemFonts", lambda: [str(tmp_path / "noto-cjk.ttf")])
    assert find_fonts({"今", "a"}) == (["DejaVu Sans"], {"今"})
    lines: list[str] = []
    remark_on_missing({"今"}, lines.append)
    assert lines == ["no installed font has the characters 今 (Debian: apt install fonts-noto-cjk)"]
