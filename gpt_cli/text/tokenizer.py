"""Base class of all tokenizers."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gpt_cli.errors import DataError
from gpt_cli.text.documents import at_line

END_OF_TEXT = "<|endoftext|>"


class Tokenizer(ABC):
    """Base class of tokenizers with ids 0..vocab_size-1; end_of_text is the last id, except in HuggingFaceTokenizer."""

    kind: str
    vocab_size: int
    end_of_text: int
    token_bytes: list[bytes]  # of every id; of ours without end_of_text
    starts_with: Sequence[int] = ()  # ids before the first of every text

    def __init__(self, token_bytes: Iterable[bytes]):
        self.token_bytes = list(token_bytes)
        self.end_of_text, self.vocab_size = len(self.token_bytes), len(self.token_bytes) + 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocab_size={self.vocab_size})"

    @cached_property
    def digest(self) -> str:
        """The sha256 of the whole tokenizer: tokenizers with equal digests encode alike."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text; raise DataError for a character that the vocabulary lacks."""
        return self.array(text).tolist()

    def begin(self, ids: Sequence[int]) -> list[int]:
        """Return `starts_with`, which begins every text, and then a prompt's ids; if both are empty, end-of-text."""
        return [*self.starts_with, *ids] or [self.end_of_text]

    def continued(self, text: str) -> np.ndarray:
        """Return the ids of a later piece (see `cut`) of a text; `array` returns the ids of the first piece."""
        return self.array(text)

    def cut(self, text: str, at: int) -> int | None:
        """Return the end of the piece (unit of tokenization) that starts at `at`; None if it may be all the rest."""
        return at_line(text, at)

    @abstractmethod
    def array(self, text: str) -> np.ndarray:
        """Return the token ids of a text as unsigned integers [tokens]; raise DataError as `encode` does."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the tokenizer as JSON data, from which `tokenizer_from_dict` makes an equal tokenizer."""

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of ids, which may end in the middle of a character; end-of-text gives no bytes."""
        return b"".join(self.token_bytes[i] for i in ids if i != self.end_of_text)

    def decode(self, ids: Iterable[int], *, begins: bool = True) -> str:
        """Decode ids, with U+FFFD for invalid UTF-8; if `begins`, they start a text (see `at_the_start`)."""
        content = self.decode_bytes(ids)
        return (self.at_the_start(content) if begins else content).decode("utf-8", errors="replace")

    def at_the_start(self, content: bytes) -> bytes:
        """Return `content`, the start of a text, without the space that some tokenizers put before the first word."""
        return content

    def token_text(self, token_id: int) -> str:
        """Return a token as readable text; bytes that are not a character are written as <0xE4>."""
        if token_id == self.end_of_text:
            return END_OF_TEXT
        content = self.token_bytes[token_id]
        try:
            return content.decode("utf-8").replace("\0", "<0x00>")
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in content)


def utf8(text: str) -> bytes:
    """Encode a text in UTF-8; raise DataError for half a character (a lone surrogate)."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        wrong = ord(text[error.start])
        if 0xDC80 <= wrong <= 0xDCFF:  # as Python keeps bytes of a command line that are not UTF-8
            sentence = f"byte 0x{wrong - 0xDC00:02x} at position {error.start:,} is not UTF-8"
            hint = "what came may be in another encoding, such as GBK; send UTF-8"
            raise DataError("text", sentence, hint=hint) from None
        half = f"U+{wrong:04X} at position {error.start:,}"
        raise DataError("text", f"{half} is half a character; text consists of whole Unicode characters") from None


def byte_letters() -> list[str]:
    """Return the 256 printable characters that stand for bytes in GPT-2's vocabulary, in the order of the bytes.

    Bytes of visible Latin-1 characters stand for themselves; all others get U+0100, U+0101, ... in order.
    """
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]
