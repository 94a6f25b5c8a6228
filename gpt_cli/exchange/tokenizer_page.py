"""A tokenizer in the content of a page, whose scripts encode and decode with it. Needs no torch."""

from __future__ import annotations

import base64

from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.strict_json import strict_json
from gpt_cli.errors import CheckpointError
from gpt_cli.exchange.javascript_pattern import javascript_pattern
from gpt_cli.text.tokenizer import BytePairTokenizer, CharTokenizer, Tokenizer, tokenizer_from_dict


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
        "lengths": _base64(b"".join(_length(token) for token in tokenizer.token_bytes)),
    }


def _length(token: bytes) -> bytes:
    """The length of a token as a sum: bytes of 255, and a smaller last one."""
    return b"\xff" * (len(token) // 255) + bytes([len(token) % 255])


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
