"""Import matplotlib for all pictures, save figures as bytes, and find fonts that have the characters of a text.

Texts may be Chinese, and matplotlib's own font lacks Chinese characters. Needs no torch.
"""

import contextlib
import io
import logging
import re
import threading
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Hide matplotlib's warnings in the context, such as those about its font search or an unwritable home folder."""
    logger = logging.getLogger("matplotlib")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


with without_warnings():
    # `as` marks what other modules import from here
    from matplotlib import font_manager, rc_context, style
    from matplotlib.axes import Axes as Axes
    from matplotlib.colors import PowerNorm as PowerNorm
    from matplotlib.figure import Figure
    from matplotlib.ft2font import FT2Font
    from matplotlib.lines import Line2D as Line2D
    from matplotlib.rcsetup import cycler as cycler
    from matplotlib.text import Text as Text
    from matplotlib.ticker import LogFormatter as LogFormatter
    from matplotlib.ticker import MaxNLocator as MaxNLocator

_LIKELY_CJK = re.compile(r"cjk|han|hei|song|ming|kai|fang|gothic|unicode|fallback|noto|yahei|pingfang", re.IGNORECASE)
# files with the simplified forms of characters: in a collection, one of several faces; jp and kr have others
_SIMPLIFIED = re.compile(r"cjk-|cjksc|sans-?(sc|cn|gb)|wqy|simhei|yahei|pingfang|heiti", re.IGNORECASE)
_OTHER_WEIGHT = re.compile(r"bold|black|light|thin|medium|heavy", re.IGNORECASE)
_COMMON = set("注意力权重训练验证损失每步头层")  # a font that has them has our words
_SETTINGS_LOCK = threading.RLock()  # all threads share matplotlib's settings
_HINT = "(Debian: apt install fonts-noto-cjk)"


@contextlib.contextmanager
def default_style(settings: dict[str, object]) -> Iterator[None]:
    """Use matplotlib's default style with `settings`, whatever rcParams the caller set; one thread draws at a time."""
    with _SETTINGS_LOCK, style.context(["default", settings]):
        yield


def as_file(figure: Figure, kind: str) -> bytes:
    """Return the bytes of a figure as a file of type `kind` (png, svg or pdf); equal figures give equal bytes.

    SVG stores words as paths. PDF stores words as text in TrueType fonts. If a text lists several fonts, PDF
    stores all words in Type 3 fonts, because the further fonts, such as Chinese ones, may not be TrueType.
    """
    buffer, dates = io.BytesIO(), {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    others = any(len({*text.get_fontfamily()}) > 1 for text in figure.findobj(Text))
    with rc_context({"svg.hashsalt": "gpt", "pdf.fonttype": 3 if others else 42}), without_warnings():
        figure.savefig(buffer, format=kind, metadata=dates.get(kind))
    return buffer.getvalue()


def fonts_for(spoken: str, notice: Callable[[str], object]) -> tuple[list[str], str]:
    """Return names of fonts for titles in the language `spoken` (en or zh), and the language that they can show.

    If `spoken` is zh and no installed font has Chinese characters, this language is en, and `notice` receives a line.
    """
    fonts, missing = find_fonts(_COMMON if spoken == "zh" else set())
    if missing:
        notice(f"no installed font has Chinese characters, so the picture is in English {_HINT}")
    return fonts, "en" if missing else spoken


def remark_on_missing(missing: set[str], notice: Callable[[str], object], instead: str = "") -> None:
    """Send `notice` a line about the letters in `missing`, which fonts lack, and a line about the signs, such as emoji.

    Both lines include the clause `instead`, such as "; the picture shows ids instead of these tokens".
    """
    letters = sorted(character for character in missing if character.isalpha())
    signs = sorted(character for character in missing if unicodedata.category(character) == "So")
    if letters:
        end = f" {_HINT}" if any(unicodedata.east_asian_width(character) == "W" for character in letters) else ""
        notice(f"no installed font has the characters {' '.join(letters[:10])}{instead}{end}")
    if signs:
        notice(f"pictures cannot show coloured characters such as {' '.join(signs[:10])}{instead}")


def find_fonts(characters: set[str]) -> tuple[list[str], set[str]]:
    """Return the names of fonts that together have `characters`, and the set of characters that none of them has.

    DejaVu Sans is always the first font. Installed fonts follow if needed, Chinese fonts first, but never emoji fonts.
    """
    fonts = ["DejaVu Sans"]
    if not (missing := characters - _characters(Path(font_manager.findfont(fonts[0])))):
        return fonts, missing
    for path in sorted(map(Path, font_manager.findSystemFonts()), key=_preference):
        # fonts of coloured emoji cannot be drawn
        if "emoji" not in path.name.lower() and missing & (has := _characters(path)):
            fonts.append(_register_font(path))
            missing = missing - has
    return fonts, missing


def _preference(path: Path) -> tuple[bool, bool, bool, str]:
    """Return the sort key of a font file: simplified Chinese, other CJK, then other fonts; regular weights first."""
    unlikely, others = not _LIKELY_CJK.search(path.name), not _SIMPLIFIED.search(path.name)
    return others and unlikely, others, bool(_OTHER_WEIGHT.search(path.name)), path.name


def _register_font(path: Path) -> str:
    """Let matplotlib draw with a font file; return the name of its font, or of its simplified Chinese face."""
    with without_warnings():
        font_manager.fontManager.addfont(path)
    names = [face.name for face in font_manager.fontManager.ttflist if face.fname == str(path)]
    return next((name for name in names if name.endswith((" SC", " CN"))), names[0])


def _characters(font: Path) -> set[str]:
    """Return the characters of a font; an empty set if the font is damaged or FreeType cannot read it."""
    try:
        return {chr(point) for point in FT2Font(str(font)).get_charmap()}
    except (OSError, RuntimeError):
        return set()
