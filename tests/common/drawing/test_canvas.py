"""Pictures come out the same whatever canvas the environment names for matplotlib, and find the fonts of their words."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpt_cli.common.drawing import canvas
from gpt_cli.common.drawing.canvas import Figure, as_file, find_fonts, fonts_for, remark_on_missing

DRAW = """
import os, sys
from gpt_cli.common.drawing.canvas import Figure, as_file
figure = Figure(figsize=(2, 2), dpi=100)
figure.text(0.5, 0.5, "a")
sys.stdout.buffer.write(as_file(figure, "png"))
import logging, matplotlib
assert logging.getLogger("matplotlib").level == 0
named = os.environ.get("MPLBACKEND")
print(named, matplotlib.rcParams._get("backend") == named, file=sys.stderr)
assert "matplotlib.pyplot" not in sys.modules
"""


@pytest.mark.slow
def test_a_picture_is_the_same_with_any_canvas_in_the_environment_and_without_a_home_directory() -> None:
    """The variable stays as it is, other code draws on the canvas that its user chose, and nothing is said of a cache."""
    homeless = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), "/dev/null")
    environment = os.environ | homeless | {"MPLBACKEND": "TkAgg"}
    done = subprocess.run([sys.executable, "-c", DRAW], capture_output=True, env=environment)
    assert (done.returncode, done.stderr) == (0, b"TkAgg True\n")
    figure = Figure(figsize=(2, 2), dpi=100)
    figure.text(0.5, 0.5, "a")
    assert done.stdout == as_file(figure, "png")


@pytest.mark.slow
@pytest.mark.long
def test_the_command_draws_in_the_shell_of_a_notebook(smoke_run: Path, tmp_path: Path) -> None:
    environment = os.environ | {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    for words in (["attn-dump", "--prompt", "The value of"], ["explain", "--study", "mask"]):
        out = tmp_path / f"{words[0]}.png"
        command = [sys.executable, "-m", "gpt_cli", *words, "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        assert out.read_bytes().startswith(b"\x89PNG")


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
    monkeypatch.setattr(canvas.font_manager, "findSystemFonts", lambda: [str(tmp_path / "noto-cjk.ttf")])
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
    tried = sorted((Path("/fonts") / name for name in reversed(expected)), key=canvas._preference)
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
        monkeypatch.setattr(canvas.font_manager, "fontManager", manager(*names))
        assert canvas._register_font(Path("/cjk.ttc")) == taken


def test_what_a_font_package_cannot_mend_is_not_blamed_on_one() -> None:
    lines: list[str] = []
    for missing in ({"🌞", "👩", "\u200d"}, {"क"}, {"今", "🌞"}):
        remark_on_missing(missing, lines.append)
    assert lines == [
        "pictures cannot show coloured characters such as 🌞 👩",
        "no installed font has the characters क",
        "no installed font has the characters 今 (Debian: apt install fonts-noto-cjk)",
        "pictures cannot show coloured characters such as 🌞",
    ]


def test_our_words_are_english_where_no_font_has_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canvas.font_manager, "findSystemFonts", list)
    lines: list[str] = []
    assert fonts_for("en", lines.append) == (["DejaVu Sans"], "en")
    assert lines == []
    assert fonts_for("zh", lines.append) == (["DejaVu Sans"], "en")
    wrong = "no installed font has Chinese characters, so the picture is in English"
    assert lines == [f"{wrong} (Debian: apt install fonts-noto-cjk)"]
