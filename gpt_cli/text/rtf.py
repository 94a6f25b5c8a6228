"""Decode the characters of RTF, as pandoc knows only Western code pages and drops a letter that follows a \\u code."""

from __future__ import annotations

import codecs
import contextlib
import re
from functools import partial
from typing import Any

# a word with its number, a byte in hex, text, an escaped character, a brace, a line break, another symbol
_TOKEN = re.compile(rb"(?is)\\([a-z]+)(-?\d{1,10})? ?|\\'([\da-f]{2})|([^\\{}\r\n]+)|\\([\\{}])|([{}])|([\r\n])|\\.")
_escaped = partial(re.compile(r"[\\{}]").sub, r"\\\g<0>")
# what \fcharset, \ansicpg or a word for the whole file names; for other fonts, \ansicpg decides
_CODECS: dict[int | bytes, str] = {0: "cp1252", 77: "mac_roman", 128: "cp932", 129: "cp949", 130: "cp1361"}
_CODECS |= {134: "gb18030", 136: "cp950", 161: "cp1253", 162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256"}
_CODECS |= {186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250", 254: "cp437", 255: "cp850"}
_CODECS |= {936: "gb18030", 10000: "mac_roman", b"mac": "mac_roman", b"pc": "cp437", b"pca": "cp850"}


def in_unicode(content: bytes) -> bytes:
    """Return RTF in UTF-8, with \\u and \\'xx codes replaced by characters, decoded by the code page of their font."""
    with contextlib.suppress(UnicodeDecodeError):  # some programs write UTF-8
        content = re.sub(r"[^\0-\x7f]", lambda match: f"{{\\uc0\\u{ord(match[0])}}}", content.decode()).encode()
    state: dict[bytes, Any] = {b"codec": "cp1252", b"f": 0, b"deff": 0, b"uc": 1}  # until the group ends
    output, held, num_skipped, at = list[str](), bytearray(), 0, 0
    groups, fonts = list[dict[bytes, Any]](), dict[int, str]()
    while token := _TOKEN.match(content, at):
        word, digits, code, text, escaped, brace, line_break = token.groups()
        at, number = token.end(), int(digits or 0)
        if line_break:
            continue
        if characters := bytes.fromhex(code.decode()) if code else text or escaped:
            held += characters[num_skipped:]  # of two bytes of one character, the second may be text
            num_skipped = max(0, num_skipped - len(characters))
            continue
        if held:
            output.append(_escaped(held.decode(fonts.get(state[b"f"]) or state[b"codec"], "replace")))
            held.clear()
        num_skipped = state[b"uc"] if word == b"u" else 0
        if word == b"u":
            output.append(_escaped(chr(number if 0 <= number <= 0x10FFFF else number % 0x10000)))
        elif word == b"bin":
            at += max(0, number)
        else:
            markup = token[0].decode("latin-1")
            output.append(f"{markup.rstrip()} " if word else markup)
        if brace == b"{":
            groups.append(state)
        elif brace and groups:
            state = groups.pop()
        elif word == b"fcharset" and number in _CODECS:
            fonts[state[b"f"]] = _CODECS[number]
        elif word == b"ansicpg":
            with contextlib.suppress(LookupError):
                state = state | {b"codec": codecs.lookup(_CODECS.get(number, f"cp{number}")).name}
        elif word in (b"f", b"deff", b"uc"):
            state = state | {word: number}
        elif word == b"plain":
            state = state | {b"f": state[b"deff"]}
        elif word in _CODECS:
            state = state | {b"codec": _CODECS[word]}
    return "".join(output).encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
