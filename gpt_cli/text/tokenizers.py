"""Convert text to token ids and back, with byte pairs (trained or published), bytes, or characters as tokens.

Each of these vocabularies ends with one end-of-text token, which joins documents and starts an empty prompt. No text
encodes to this token: the literal `<|endoftext|>` in a corpus or prompt is encoded as plain text.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt_cli.errors import CheckpointError, DataError, shown
from gpt_cli.text.documents import split_document
from gpt_cli.text.hf_tokenizer import HuggingFaceTokenizer
from gpt_cli.text.split_patterns import PATTERNS
from gpt_cli.text.tokenizer import END_OF_TEXT, Tokenizer, utf8

if TYPE_CHECKING:
    import tiktoken

_UNKNOWN = np.uint32(2**32 - 1)
_FEW = 0.02  # of the characters of a text, which one may leave out


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
        places = unknown[np.sort(first)[:5]].tolist()  # the first ones of five kinds
        named = ", ".join(f"{shown(text[i])} U+{ord(text[i]):04X} at position {i:,}" for i in places)
        sentence = f"this model knows {len(self.characters):,} characters, but not {named}"
        if len(unknown) > len(places):
            of = "all of one kind" if kinds == 1 else f"of {kinds:,} kinds"
            sentence += f"; of {len(text):,} characters read at once, it lacks {len(unknown):,}, {of}"
        hint = "leave these characters out, or train with ‹tokenizer.kind=bpe›, which reads every character"
        if len(text) >= 20 and len(unknown) > _FEW * len(text):
            hint = "it reads texts like the one it was trained on; one trained with ‹tokenizer.kind=bpe› reads all"
        if {text[i] for i in places} == {"\r"} and "\r\n" in text:
            hint = "\\r belongs to Windows line ends; this takes it out: tr -d '\\r' < OLD > NEW"
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
    """A byte-pair tokenizer, trained by gpt (kind bpe) or published (kind tiktoken); the library tiktoken encodes."""

    def __init__(self, kind: str, pattern: str, token_bytes: Sequence[bytes]):
        super().__init__(token_bytes)
        self.kind, self.pattern = kind, pattern

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
        encoded = [self.encoding.encode_to_numpy(piece, disallowed_special=()) for piece in split_document(text)]
        return encoded[0] if len(encoded) == 1 else np.concatenate([np.empty(0, np.uint32), *encoded])

    def to_dict(self) -> dict[str, Any]:
        tokens = " ".join(base64.b64encode(token).decode() for token in self.token_bytes)
        return {"kind": self.kind, "pattern": self.pattern, "tokens": tokens}


def tokenizer_from_dict(stored: Mapping[str, Any]) -> Tokenizer:
    """Build a tokenizer from the data of `to_dict`; raise CheckpointError for anything else."""
    tokenizer: Tokenizer | None = None
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError, RecursionError):
        if stored["kind"] == "byte":
            tokenizer = ByteTokenizer()
        elif stored["kind"] == "char":
            if len(set(stored["characters"])) == len(stored["characters"]):
                tokenizer = CharTokenizer(stored["characters"])
        elif stored["kind"] in ("bpe", "tiktoken"):
            if (pattern := stored["pattern"]) not in PATTERNS:
                raise CheckpointError("tokenizer", f"it cuts a text by {shown(pattern)}, which gpt does not know")
            tokens = [base64.b64decode(token, validate=True) for token in stored["tokens"].split(" ")]
            distinct = set(tokens)
            if {*ByteTokenizer().token_bytes} <= distinct and len(distinct) == len(tokens) and b"" not in distinct:
                tokenizer = BytePairTokenizer(stored["kind"], pattern, tokens)
        elif stored["kind"] == "kept":
            tokenizer = HuggingFaceTokenizer.of_dict(stored)
    if tokenizer is None or tokenizer.to_dict() != stored:
        raise CheckpointError("tokenizer", "this is not a tokenizer that gpt writes")
    return tokenizer


def code_points(text: str) -> np.ndarray:
    """Return the code point of each character: uint32 [characters]. Raises DataError for a lone surrogate."""
    try:
        return np.frombuffer(text.encode("utf-32-le"), np.uint32)
    except UnicodeEncodeError:
        utf8(text)
        raise
