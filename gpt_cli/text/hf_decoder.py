"""Decode the name of a token in a tokenizer.json to bytes, as the library tokenizers does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpt_cli.text.tokenizer import byte_letters, utf8

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# what the library's WordPiece makes of a token for a reader, in this order
_CLEANED = (
    *((f" {mark}", mark) for mark in ".?!,"),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    *((f" {end}", end) for end in ("'s", "'ve", "'re")),
)


def decoder(steps: Sequence[Mapping[str, Any]]) -> Callable[[str], bytes]:
    """Return a function from a token to its bytes within a text, by steps that `hf_tokenizer_rules` lets pass."""
    by_type = {step["type"]: step for step in steps}
    if "ByteLevel" in by_type:
        letters = {letter: bytes([byte]) for byte, letter in enumerate(byte_letters())}

        def of_letters(name: str) -> bytes:
            try:
                return b"".join(map(letters.__getitem__, name))
            except KeyError:  # the library too takes a name with another character for plain text
                return utf8(name)

        return of_letters
    if word := by_type.get("WordPiece"):
        return lambda name: _of_word(name, word["prefix"], word["cleanup"])
    if marked := by_type.get("Metaspace"):
        return lambda name: utf8(name.replace(marked["replacement"], " "))
    replaced, has_bytes = by_type.get("Replace"), "ByteFallback" in by_type

    def of_marks(name: str) -> bytes:
        if has_bytes and (byte := _BYTE.fullmatch(name)):
            return bytes([int(byte[1], 16)])
        return utf8(name.replace(replaced["pattern"]["String"], replaced["content"]) if replaced else name)

    return of_marks


def leaves_out_space(steps: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether decoding leaves out the space with which a text begins."""
    by_type = {step["type"]: step for step in steps}
    if marked := by_type.get("Metaspace"):
        return marked.get("prepend_scheme") != "never"
    return "WordPiece" in by_type or by_type.get("Strip", {}).get("start") == 1


def _of_word(name: str, prefix: str, cleanup: bool) -> bytes:
    text = name[len(prefix) :] if name.startswith(prefix) else f" {name}"
    for long, short in _CLEANED if cleanup else ():
        text = text.replace(long, short)
    return utf8(text)
