"""The fonts of pictures."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpt_cli.common.drawing import fonts
from gpt_cli.common.drawing.fonts import find_fonts, fonts_for, remark_on_missing


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


def test_regular_fonts_with_simplified_characters_are_tried_first() -> None:
    expected = [
        "NotoSansCJK-Regular.ttc",
        "NotoSerifCJK-Regular.ttc",
        "NotoSansCJK-Bold.ttc",
        "SourceHanSansSC-Light.otf",
        "NotoSansCJKjp-Regular.otf",
        "DejaVuSansMono.ttf",
    ]
    tried = sorted((Path("/fonts") / name for name in reversed(expected)), key=fonts._preference)
    assert [path.name for path in tried] == expected


def test_of_a_collection_the_simplified_face_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def manager(*names: str) -> SimpleNamespace:
        other = SimpleNamespace(fname="/other.ttc", name="Other SC")
        faces = [other, *(SimpleNamespace(fname="/cjk.ttc", name=name) for name in names)]
        return SimpleNamespace(addfont=lambda path: None, ttflist=faces)

    for names, taken in (
        (("Noto JP", "Noto KR", "Noto SC"), "Noto SC"),
        (("WenQuanYi", "WenQuanYi Mono"), "WenQuanYi"),
    ):
        monkeypatch.setattr(fonts.font_manager, "fontManager", manager(*names))
        assert fonts._register_font(Path("/cjk.ttc")) == taken


def test_what_a_font_package_cannot_mend_is_not_blamed_on_one() -> None:
    lines: list[str] = []
    for missing in ({"🌞", "👩", "\u200d"}, {"क"}, {"今", "🌞"}):
        remark_on_missing(missing, lines.append)
    assert lines == [
        "pictures cannot have coloured signs such as 🌞 👩",
        "no installed font has the characters क",
        "no installed font has the characters 今 (Debian: apt install fonts-noto-cjk)",
        "pictures cannot have coloured signs such as 🌞",
    ]


def test_our_words_are_english_where_no_font_has_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts.font_manager, "findSystemFonts", list)
    lines: list[str] = []
    assert fonts_for("en", lines.append) == (["DejaVu Sans"], "en")
    assert lines == []
    assert fonts_for("zh", lines.append) == (["DejaVu Sans"], "en")
    wrong = "no installed font has Chinese characters, so the picture is in English"
    assert lines == [f"{wrong} (Debian: apt install fonts-noto-cjk)"]
