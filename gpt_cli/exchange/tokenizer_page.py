"""A tokenizer in the content of a page, whose scripts encode and decode with it. Needs no torch.

Python and JavaScript know different versions of Unicode, and even browsers differ. So every class of characters in the
pattern that cuts text is written out: the library tiktoken itself says which characters it matches.
"""

from __future__ import annotations

import base64
import re

import numpy as np

from gpt_cli.checkpoints.header import Header
from gpt_cli.errors import CheckpointError
from gpt_cli.strict_json import strict_json
from gpt_cli.text.tokenizer import BytePairTokenizer, CharTokenizer, Tokenizer, code_points, tokenizer_from_dict

# a class in brackets, a class by its letter or its name
_CLASS = re.compile(r"\[(?:\\[pP]\{\w+\}|\\.|[^]\\])+\]|\\[pP]\{\w+\}|\\[sS]")
_WITHOUT_CASE = re.compile(r"\(\?i:([^()]*)\)")
_POSSESSIVE = re.compile(r"([*+?]|[0-9]\})\+")


def tokenizer_of(header: Header) -> Tokenizer:
    """The tokenizer that a header contains; raises CheckpointError for one that is not valid."""
    try:
        return tokenizer_from_dict(strict_json(header.metadata["tokenizer"]))
    except (ValueError, RecursionError):
        raise CheckpointError(header.where, "its tokenizer is not valid") from None


def tokenizer_content(tokenizer: Tokenizer) -> dict[str, str]:
    """Data for JSON from which the page makes a tokenizer that gives the same ids for every text.

    Raises CheckpointError for a pattern that JavaScript may not match equally.
    """
    if isinstance(tokenizer, CharTokenizer):
        return {"kind": tokenizer.kind, "characters": "".join(tokenizer.characters)}
    if not isinstance(tokenizer, BytePairTokenizer):
        return {"kind": tokenizer.kind}
    return {
        "kind": tokenizer.kind,
        "pattern": javascript_pattern(tokenizer.pattern),
        "tokens": _base64(b"".join(tokenizer.token_bytes)),
        # a length is a sum: bytes of 255, and a smaller last one
        "lengths": _base64(b"".join(b"\xff" * (n // 255) + bytes([n % 255]) for n in map(len, tokenizer.token_bytes))),
    }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def javascript_pattern(pattern: str) -> str:
    """The source of a regular expression with the flag u that cuts a text as this one of `text.patterns` does.

    A tokenizer with another pattern is refused where it is read.
    """
    members = dict[str, str]()

    def one_of(single: str) -> str:
        if single not in members:
            members[single] = _written(_members(single))
        return members[single]

    def of_any_case(group: re.Match[str]) -> str:
        return f"(?:{re.sub(rf'{_CLASS.pattern}|[a-z]', lambda one: one_of(f'(?i:{one[0]})'), group[1])})"

    # in these patterns, nothing after a possessive repetition could match what it gives back
    greedy = _POSSESSIVE.sub(r"\1", pattern)
    parts = re.split(f"({_WITHOUT_CASE.pattern})", greedy)
    del parts[2::3]  # what the group contains, which the group has already
    return "".join(
        _WITHOUT_CASE.sub(of_any_case, part) if number % 2 else _CLASS.sub(lambda one: one_of(one[0]), part)
        for number, part in enumerate(parts)
    )


def _members(single: str) -> np.ndarray:
    """The code points that a pattern of one character matches, as the library tiktoken sees it: ascending."""
    alone = BytePairTokenizer("bpe", single, [bytes([byte]) for byte in range(256)])
    every_character = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    found = alone.encoding.encode_to_numpy(every_character)
    return code_points(found.astype(np.uint8).tobytes().decode("utf-8")).astype(np.int64)


def _written(points: np.ndarray) -> str:
    """One of these code points, in the syntax of JavaScript."""
    firsts = points[np.diff(points, prepend=-2) != 1].tolist()  # of runs of neighbours
    lasts = points[np.diff(points, append=-2) != 1].tolist()
    runs = zip(map(_letter, firsts), map(_letter, lasts), strict=True)
    return "[" + "".join(one if one == last else f"{one}-{last}" for one, last in runs) + "]"


def _letter(point: int) -> str:
    return chr(point) if chr(point).isascii() and chr(point).isalnum() else f"\\u{{{point:X}}}"
