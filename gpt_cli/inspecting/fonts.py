"""The fonts that a picture needs for its words, Chinese ones among them. Needs no torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from gpt_cli.inspecting.canvas import FT2Font, font_manager

_LIKELY_CJK = re.compile(r"cjk|han|hei|song|ming|kai|fang|gothic|unicode|fallback|noto|yahei|pingfang", re.IGNORECASE)


def remark_on_missing(missing: set[str], notice: Callable[[str], object]) -> None:
    """Give `notice` a line about characters that no installed font has, if there are any."""
    if missing:
        some = " ".join(sorted(missing)[:10])
        notice(f"no installed font has the characters {some} (Debian: apt install fonts-noto-cjk)")


def find_fonts(characters: set[str]) -> tuple[list[str], set[str]]:
    """The names of fonts that together have the characters, matplotlib's own first; and the characters none has."""
    fonts = ["DejaVu Sans"]
    missing = characters - _characters(Path(font_manager.findfont(fonts[0])))
    if not missing:
        return fonts, missing
    installed = [Path(path) for path in font_manager.findSystemFonts()]
    installed.sort(key=lambda path: (not _LIKELY_CJK.search(path.name), path.name))
    for path in installed:
        # fonts of coloured emoji cannot be drawn
        if "emoji" not in path.name.lower() and missing & (has := _characters(path)):
            font_manager.fontManager.addfont(path)
            fonts.append(font_manager.FontProperties(fname=path).get_name())
            missing = missing - has
    return fonts, missing


def _characters(font: Path) -> set[str]:
    """The characters that a font has; none for one that is damaged or that FreeType does not read."""
    try:
        return {chr(point) for point in FT2Font(str(font)).get_charmap()}
    except (OSError, RuntimeError):
        return set()
