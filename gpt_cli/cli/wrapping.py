"""Break lines that are longer than the terminal is wide between words."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TextIO

from rich.cells import cell_len

from gpt_cli.common.tables import filled

_CHINESE = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
_OPENING, _CLOSING = "（“‘《「『【", "，。；：？！、）”’》」』】…"
_WORD = rf"""(?:'[^']*'|"[^"]*"|[^\s'"{_CHINESE}])+"""  # of a shell: quoted, it has spaces
_FLAG = rf"--?[a-z][\w-]*(?:[ =](?!-){_WORD})?"
# of other programs, with files that they read and write
_OTHER = rf"(?:iconv|tr|python|ulimit)(?: -\w+(?: (?![<>-]){_WORD})?)+(?: (?![<>-]){_WORD})?(?: [<>] {_WORD})*"
_WHOLE = rf"(?:{_OTHER}|(?:(?:gpt|pip|hf|apt)(?: (?!-){_WORD}){{1,3}}|{_FLAG})(?: {_FLAG})*(?: > {_WORD})?)"
# what stays together: a command, a Chinese character, a word; each with the punctuation around it
_PIECE = re.compile(
    rf"\s|[{_OPENING}]*(?:{_WHOLE}[^\s{_CHINESE}]*|[{_CHINESE}]|[^\s{_CHINESE}]+)[{_CLOSING}]*|[{_OPENING}]+"
)


def terminal_width(stream: TextIO) -> int | None:
    """Return the columns of the terminal behind a stream; None where there is no terminal, or an unknown width."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream.isatty() else None
    except (OSError, ValueError):
        return None


def wrapped(text: str, width: int | None) -> str:
    """Wrap a text to lines of at most `width` columns, between words and between Chinese characters.

    A command stays on one line, even where that is longer than the terminal: its own wrapping can be copied.
    """
    if width is None or len(text) * 2 <= width:
        return text
    return "\n".join(broken for line in text.split("\n") for broken in _lines(line, width))


def _lines(line: str, width: int) -> Iterator[str]:
    if cell_len(line) <= width:
        yield line
        return
    # below the text of a row, or of a line that is indented
    lead = re.match(r"\S+ {2,}| *", line)
    indent = " " * cell_len(lead[0] if lead else "")
    indent = indent if 2 * len(indent) <= width else ""
    yield from filled(_PIECE.findall(line), width, indent)
