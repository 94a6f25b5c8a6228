"""From ids to text while they come, never half a character."""

from __future__ import annotations

import codecs

from gpt_cli.text.tokenizer import Tokenizer


class TextStream:
    """Gives out text as soon as its characters are whole; bytes that are none become U+FFFD."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token_id: int) -> str:
        """The characters that this token completes; often none for Chinese, whose characters take three bytes."""
        return self._decoder.decode(self._tokenizer.decode_bytes([token_id]))

    def finish(self) -> str:
        """What is left of a character that was never completed."""
        return self._decoder.decode(b"", final=True)


def printable(text: str) -> str:
    """Text for a terminal: control characters that could move the cursor or ring the bell are escaped."""
    return "".join(c if c.isprintable() or c in "\n\t" or ord(c) > 0x9F else f"\\x{ord(c):02x}" for c in text)
