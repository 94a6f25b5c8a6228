"""Text to token ids and back: trained byte pairs, published ones, bytes, or characters.

Every vocabulary ends with one end-of-text token, which joins documents and starts an empty prompt.
No text encodes to it: the literal `<|endoftext|>` in a corpus or prompt is encoded as plain text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt_cli.errors import CheckpointError, DataError, shown
from gpt_cli.text.blocks import at_line, pieces

if TYPE_CHECKING:
    import tiktoken

END_OF_TEXT = "<|endoftext|>"
# A pattern cuts a text into words before byte pairs are merged. Some patterns would take the library that searches with
# them exponential time or gigabytes, so gpt refuses a file of strangers that names another than these.

# words with their leading space, up to three digits, runs of marks, white space
WORD_PATTERN = r" ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# as Radford et al. 2019 published it, which imported tokenizers have
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# of the library tiktoken since its version 0.9
R50K_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
O200K_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# as versions before 0.9 wrote the first two of those, which many imported tokenizers have; Llama 3 has the second
OLD_R50K_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
OLD_CL100K_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# of Qwen 2: one digit at a time
QWEN2_PATTERN = OLD_CL100K_PATTERN.replace("{1,3}", "")
PATTERNS = (
    WORD_PATTERN,
    GPT2_PATTERN,
    R50K_PATTERN,
    CL100K_PATTERN,
    O200K_PATTERN,
    OLD_R50K_PATTERN,
    OLD_CL100K_PATTERN,
    QWEN2_PATTERN,
)
_UNKNOWN = np.uint32(2**32 - 1)
_FEW = 0.02  # of the characters of a text, which one may leave out


class Tokenizer(ABC):
    """What every kind has in common: ids 0..vocab_size-1, of which the last is end_of_text, but for kept ones."""

    kind: str
    token_bytes: list[bytes]  # of every id; of ours without end_of_text

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocab_size={self.vocab_size})"

    @property
    def vocab_size(self) -> int:
        return len(self.token_bytes) + 1

    @property
    def end_of_text(self) -> int:
        return len(self.token_bytes)

    @cached_property
    def starts_with(self) -> list[int]:
        """The ids before the first of every text; none for ours."""
        return []

    @cached_property
    def digest(self) -> str:
        """The sha256 of the whole tokenizer: tokenizers with equal digests encode alike."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """The ids of a text; raises DataError for a character that the vocabulary lacks."""
        return self.array(text).tolist()

    def begin(self, ids: Sequence[int]) -> list[int]:
        """The ids of a prompt: what comes before every text, then its own; end-of-text where there is nothing."""
        return [*self.starts_with, *ids] or [self.end_of_text]

    def continued(self, text: str) -> np.ndarray:
        """The ids of a part of a text that `cut` has cut off, as `array` gives them."""
        return self.array(text)

    def cut(self, text: str, at: int) -> int | None:
        """Where the part of a text that begins at a place ends; None for the rest of it, while that may be its last."""
        return at_line(text, at)

    @abstractmethod
    def array(self, text: str) -> np.ndarray:
        """The ids of a text as an array of unsigned numbers [tokens]; raises DataError as `encode` does."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `tokenizer_from_dict` makes an equal tokenizer."""

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of some ids, which may end in the middle of a character; end-of-text has none."""
        return b"".join(self.token_bytes[i] for i in ids if i != self.end_of_text)

    def decode(self, ids: Iterable[int], *, begins: bool = True) -> str:
        """The text of some ids, which begin a text or continue one; bytes that are no character become U+FFFD."""
        content = self.decode_bytes(ids)
        return (self.at_the_start(content) if begins else content).decode("utf-8", errors="replace")

    def at_the_start(self, content: bytes) -> bytes:
        """The bytes with which a text begins, without the space that some tokenizers put before its first word."""
        return content

    def token_text(self, token_id: int) -> str:
        """One token for a reader: its text, or its bytes as <0xE4> where they are not a character."""
        if token_id == self.end_of_text:
            return END_OF_TEXT
        content = self.token_bytes[token_id]
        try:
            return content.decode("utf-8").replace("\0", "<0x00>")
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in content)


class ByteTokenizer(Tokenizer):
    """The 256 bytes of UTF-8."""

    kind = "byte"

    def __init__(self) -> None:
        self.token_bytes = [bytes([byte]) for byte in range(256)]

    def array(self, text: str) -> np.ndarray:
        return np.frombuffer(utf8(text), np.uint8)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind}


class CharTokenizer(Tokenizer):
    """The characters of the corpus, in the order of their code points."""

    kind = "char"

    def __init__(self, characters: Sequence[str]):
        self.characters = list(characters)
        self.token_bytes = [utf8(character) for character in self.characters]

    def array(self, text: str) -> np.ndarray:
        ids = self._id_of_code_point[np.minimum(code_points(text), len(self._id_of_code_point) - 1)]
        unknown = np.flatnonzero(ids == _UNKNOWN)
        if len(unknown):
            raise self._lack(text, unknown)
        return ids

    def _lack(self, text: str, unknown: np.ndarray) -> DataError:
        """The error about the places of a text whose characters the vocabulary lacks."""
        kinds = len(np.unique(code_points(text)[unknown]))
        first: dict[str, int] = {}  # the first place of each of five kinds
        for i in unknown[:100_000].tolist():
            if len(first) == min(5, kinds):
                break
            first.setdefault(text[i], i)
        named = ", ".join(f"{shown(found)} U+{ord(found):04X} at position {i:,}" for found, i in first.items())
        sentence = f"this model knows {len(self.characters):,} characters, but not {named}"
        if len(unknown) > len(first):
            of = "all of one kind" if kinds == 1 else f"of {kinds:,} kinds"
            sentence += f"; of {len(text):,} characters read at once, it lacks {len(unknown):,}, {of}"
        hint = "leave these characters out, or train with --set tokenizer.kind=bpe, which reads every character"
        if len(text) >= 20 and len(unknown) > _FEW * len(text):
            hint = "it reads texts like the one it was trained on; one trained with --set tokenizer.kind=bpe reads all"
        return DataError("text", sentence, hint=hint)

    @cached_property
    def _id_of_code_point(self) -> np.ndarray:
        """The ids of code points, and one entry more for all that are greater: uint32."""
        points = code_points("".join(self.characters))
        ids = np.full(int(points.max(initial=0)) + 2, _UNKNOWN, np.uint32)
        ids[points] = np.arange(len(points))
        return ids

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "characters": "".join(self.characters)}


class BytePairTokenizer(Tokenizer):
    """Byte pairs merged by rank: trained here (bpe) or published (tiktoken); the library tiktoken encodes with both."""

    def __init__(self, kind: str, pattern: str, token_bytes: Sequence[bytes]):
        self.kind = kind
        self.pattern = pattern
        self.token_bytes = list(token_bytes)

    @cached_property
    def encoding(self) -> tiktoken.Encoding:
        import tiktoken  # only byte pairs need it

        ranks = {token: rank for rank, token in enumerate(self.token_bytes)}
        # without a special token tiktoken looks for the empty one everywhere, and takes half as long again; text
        # never gives it, since none is allowed
        special = {END_OF_TEXT: self.end_of_text}
        return tiktoken.Encoding("gpt", pat_str=self.pattern, mergeable_ranks=ranks, special_tokens=special)

    def array(self, text: str) -> np.ndarray:
        utf8(text)
        encoded = [self.encoding.encode_to_numpy(piece, disallowed_special=()) for piece in pieces(text)]
        return encoded[0] if len(encoded) == 1 else np.concatenate([np.empty(0, np.uint32), *encoded])

    def to_dict(self) -> dict[str, Any]:
        tokens = " ".join(base64.b64encode(token).decode() for token in self.token_bytes)
        return {"kind": self.kind, "pattern": self.pattern, "tokens": tokens}


def tokenizer_from_dict(stored: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that `to_dict` described; raises CheckpointError for anything else."""
    tokenizer: Tokenizer | None = None
    try:
        if stored["kind"] == "byte":
            tokenizer = ByteTokenizer()
        elif stored["kind"] == "char":
            if len(set(stored["characters"])) == len(stored["characters"]):
                tokenizer = CharTokenizer(stored["characters"])
        elif stored["kind"] in ("bpe", "tiktoken"):
            if (pattern := stored["pattern"]) not in PATTERNS:
                raise CheckpointError("tokenizer", f"it cuts a text by {shown(pattern)}, which gpt does not know")
            tokens = [base64.b64decode(token, validate=True) for token in stored["tokens"].split(" ")]
            known = set(tokens)
            if {bytes([byte]) for byte in range(256)} <= known and len(known) == len(tokens) and b"" not in known:
                tokenizer = BytePairTokenizer(stored["kind"], pattern, tokens)
        elif stored["kind"] == "kept":
            from gpt_cli.text.kept import KeptTokenizer  # which needs this file

            tokenizer = KeptTokenizer.of_dict(stored)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        tokenizer = None
    if tokenizer is None or tokenizer.to_dict() != stored:
        raise CheckpointError("tokenizer", "this is not a tokenizer that gpt writes")
    return tokenizer


def code_points(text: str) -> np.ndarray:
    """The code point of each character: uint32 [characters]. Raises DataError for half a character."""
    try:
        return np.frombuffer(text.encode("utf-32-le"), np.uint32)
    except UnicodeEncodeError:
        utf8(text)
        raise


def utf8(text: str) -> bytes:
    """The bytes of a text; raises DataError for half a character."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        wrong = ord(text[error.start])
        if 0xDC80 <= wrong <= 0xDCFF:  # as Python keeps bytes of a command line that are not UTF-8
            sentence = f"byte 0x{wrong - 0xDC00:02x} at position {error.start:,} is not UTF-8"
            hint = "the terminal may send another encoding, such as GBK; set it to UTF-8"
            raise DataError("text", sentence, hint=hint) from None
        half = f"U+{wrong:04X} at position {error.start:,}"
        raise DataError("text", f"{half} is half a character; text consists of whole Unicode characters") from None


def as_oniguruma(pattern: str) -> str:
    """A pattern for the library tokenizers, whose {1,3}+ repeats {1,3} and is not possessive.

    In these patterns nothing follows the digits, so both forms match the same.
    """
    return pattern.replace("{1,3}+", "{1,3}")


def byte_letters() -> list[str]:
    """The character that stands for each byte in vocabularies of byte pairs, as GPT-2 chose it: printable ones alone.

    A byte that is a visible character of Latin-1 is that character; the others follow from U+0100 in their order.
    """
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]
