"""Convert text to token ids and back, with byte pairs (trained or published), bytes, or characters as tokens.

Each of these vocabularies ends with one end-of-text token, which joins documents and starts an empty prompt. No text
encodes to this token: the literal `<|endoftext|>` in a corpus or prompt is encoded as plain text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt_cli.errors import DataError, counted, shown
from gpt_cli.text.documents import at_line, split_document

if TYPE_CHECKING:
    import tiktoken

END_OF_TEXT = "<|endoftext|>"
_UNKNOWN = np.uint32(2**32 - 1)
_FEW = 0.02  # of the characters of a text, which a user may leave out


class Tokenizer(ABC):
    """Base class of tokenizers with ids 0..vocab_size-1; end_of_text is the last id, except in HuggingFaceTokenizer."""

    kind: str
    vocab_size: int
    end_of_text: int
    token_bytes: list[bytes]  # by id; without end_of_text, except in HuggingFaceTokenizer
    starts_with: Sequence[int] = ()  # ids that begin every text

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
        """Prepend the tokenizer's `starts_with` to the ids of a prompt; if the result is [], return [end_of_text]."""
        return [*self.starts_with, *ids] or [self.end_of_text]

    def continued(self, text: str) -> np.ndarray:
        """Return the ids [tokens] of a later piece of a long text (see `cut`); `array` encodes the first piece."""
        return self.array(text)

    def cut(self, text: str, at: int) -> int | None:
        """Return the index after `at` at which to cut a long text for encoding; None if the rest needs no cut."""
        return at_line(text, at)

    @abstractmethod
    def array(self, text: str) -> np.ndarray:
        """Return a text's token ids as unsigned integers [tokens]; raise DataError for a character without a token."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the tokenizer as JSON data, from which `tokenizer_from_dict` makes an equal tokenizer."""

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of ids, which may end in the middle of a character; end-of-text gives no bytes."""
        return b"".join(self.token_bytes[i] for i in ids if i != self.end_of_text)

    def decode(self, ids: Iterable[int], *, begins: bool = True) -> str:
        """Decode ids, with U+FFFD for invalid UTF-8; `begins` means that the ids start a text (see `at_the_start`)."""
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


class ByteTokenizer(Tokenizer):
    """A tokenizer whose tokens are the 256 byte values; text is encoded as UTF-8."""

    kind = "byte"

    def __init__(self) -> None:
        super().__init__(bytes([byte]) for byte in range(256))

    def array(self, text: str) -> np.ndarray:
        return np.frombuffer(utf8(text), np.uint8)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind}


class CharTokenizer(Tokenizer):
    """A tokenizer whose tokens are the characters of the corpus, in the order of their code points."""

    kind = "char"

    def __init__(self, characters: Sequence[str]):
        super().__init__(map(utf8, characters))
        self.characters = list(characters)

    def array(self, text: str) -> np.ndarray:
        ids = self._id_of_code_point[np.minimum(code_points(text), len(self._id_of_code_point) - 1)]
        unknown = np.flatnonzero(ids == _UNKNOWN)
        if len(unknown):
            raise self._lack(text, unknown)
        return ids

    def _lack(self, text: str, unknown: np.ndarray) -> DataError:
        """Return the error for the characters of `text` at the indices `unknown`, which the vocabulary lacks."""
        points = code_points(text)[unknown]
        kinds, (_, first) = len(np.unique(points)), np.unique(points[:100_000], return_index=True)
        places = unknown[np.sort(first)[:5]].tolist()  # where five distinct characters first occur
        named = ", ".join(f"{shown(text[i])} U+{ord(text[i]):04X} at position {i:,}" for i in places)
        sentence = f"this model knows {counted(len(self.characters), 'character')}, but not {named}"
        if len(unknown) > len(places):
            of = "all of one kind" if kinds == 1 else f"of {kinds:,} kinds"
            sentence += f"; of {len(text):,} characters read at once, it lacks {len(unknown):,}, {of}"
        hint = "leave these characters out, or train with ‹tokenizer.kind=bpe›, which reads every character"
        if len(text) >= 20 and len(unknown) > _FEW * len(text):
            hint = "it reads texts like its training text; a model trained with ‹tokenizer.kind=bpe› reads every text"
        if {text[i] for i in places} == {"\r"} and "\r\n" in text:
            hint = "\\r belongs to Windows line ends; this command removes it: tr -d '\\r' < OLD > NEW"
        return DataError("text", sentence, hint=hint)

    @cached_property
    def _id_of_code_point(self) -> np.ndarray:
        """The id of each code point, or _UNKNOWN: uint32; the last entry is for all greater code points."""
        points = code_points("".join(self.characters))
        ids = np.full(int(points.max(initial=0)) + 2, _UNKNOWN, np.uint32)
        ids[points] = np.arange(len(points))
        return ids

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "characters": "".join(self.characters)}


class BytePairTokenizer(Tokenizer):
    """A byte-pair tokenizer, trained by gpt (kind bpe) or published (kind tiktoken); it encodes with tiktoken."""

    def __init__(self, kind: str, pattern: str, token_bytes: Sequence[bytes]):
        super().__init__(token_bytes)
        self.kind, self.pattern = kind, pattern

    @cached_property
    def encoding(self) -> tiktoken.Encoding:
        import tiktoken  # only byte pairs need it

        ranks = {token: rank for rank, token in enumerate(self.token_bytes)}
        # without a special token, tiktoken searches for the empty string everywhere, and takes half as long again;
        # no text encodes to this token, since no special token is allowed
        special = {END_OF_TEXT: self.end_of_text}
        return tiktoken.Encoding("gpt", pat_str=self.pattern, mergeable_ranks=ranks, special_tokens=special)

    def array(self, text: str) -> np.ndarray:
        utf8(text)
        encoded = [self.encoding.encode_to_numpy(piece, disallowed_special=()) for piece in split_document(text)]
        return encoded[0] if len(encoded) == 1 else np.concatenate([np.empty(0, np.uint32), *encoded])

    def to_dict(self) -> dict[str, Any]:
        tokens = " ".join(base64.b64encode(token).decode() for token in self.token_bytes)
        return {"kind": self.kind, "pattern": self.pattern, "tokens": tokens}


def utf8(text: str) -> bytes:
    """Encode a text in UTF-8; raise DataError for half a character (a lone surrogate)."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        wrong = ord(text[error.start])
        if 0xDC80 <= wrong <= 0xDCFF:  # as Python keeps bytes of a command line that are not UTF-8
            sentence = f"byte 0x{wrong - 0xDC00:02x} at position {error.start:,} is not UTF-8"
            hint = "the input may be in another encoding, such as GBK; send UTF-8"
            raise DataError("text", sentence, hint=hint) from None
        half = f"U+{wrong:04X} at position {error.start:,}"
        raise DataError("text", f"{half} is half a character; text consists of whole Unicode characters") from None


def code_points(text: str) -> np.ndarray:
    """Return the code point of each character: uint32 [characters]. Raises DataError for a lone surrogate."""
    try:
        return np.frombuffer(text.encode("utf-32-le"), np.uint32)
    except UnicodeEncodeError:
        utf8(text)
        raise


def byte_letters() -> list[str]:
    """Return the 256 printable characters that represent bytes in GPT-2's vocabulary, in the order of the bytes.

    Visible Latin-1 characters represent their own bytes; all other bytes get U+0100, U+0101, ... in order.
    """
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]
