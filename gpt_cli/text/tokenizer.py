"""Text to token ids and back: trained byte pairs, published ones, bytes, or characters.

Every vocabulary ends with one end-of-text token, which joins documents and starts an empty prompt.
No text encodes to it: the literal `<|endoftext|>` in a corpus or prompt is encoded as plain text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpt_cli.config import TokenizerConfig
from gpt_cli.errors import CheckpointError, DataError, EnvironmentFailure, UsageError, shown

if TYPE_CHECKING:
    import tiktoken

END_OF_TEXT = "<|endoftext|>"
# words with their leading space, up to three digits, runs of marks, white space
WORD_PATTERN = r" ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# the regex engine overflows its stack on a run of a million spaces; a third of it is known to pass
MAX_PIECE = 32_768
NETWORK_TIMEOUT = 8  # seconds


def pieces(text: str) -> Iterator[str]:
    """Text in pieces of at most MAX_PIECE characters, cut after a newline where there is one."""
    start = 0
    while len(text) - start > MAX_PIECE:
        newline = text.rfind("\n", start, start + MAX_PIECE)
        end = newline + 1 if newline >= 0 else start + MAX_PIECE
        yield text[start:end]
        start = end
    yield text[start:]


class Tokenizer(ABC):
    """What every kind has in common: ids 0..vocab_size-1, of which the last is end_of_text."""

    kind: str
    token_bytes: list[bytes]  # of every id but end_of_text

    @property
    def vocab_size(self) -> int:
        return len(self.token_bytes) + 1

    @property
    def end_of_text(self) -> int:
        return len(self.token_bytes)

    @cached_property
    def digest(self) -> str:
        """The sha256 of the whole tokenizer: tokenizers with equal digests encode alike."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of a text; raises DataError for a character that the vocabulary lacks."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `tokenizer_from_dict` makes an equal tokenizer."""

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of some ids, which may end in the middle of a character; end-of-text has none."""
        return b"".join(self.token_bytes[i] for i in ids if i != self.end_of_text)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids; bytes that are not a whole character become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

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

    def encode(self, text: str) -> list[int]:
        return list(_utf8(text))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind}


class CharTokenizer(Tokenizer):
    """The characters of the corpus, in the order of their code points."""

    kind = "char"

    def __init__(self, characters: Sequence[str]):
        self.characters = list(characters)
        self.token_bytes = [_utf8(character) for character in self.characters]
        self.ids = {character: i for i, character in enumerate(self.characters)}

    def encode(self, text: str) -> list[int]:
        try:
            return [self.ids[character] for character in text]
        except KeyError:
            unknown = [(i, c) for i, c in enumerate(text) if c not in self.ids]
            named = ", ".join(f"{shown(c)} U+{ord(c):04X} at position {i}" for i, c in unknown[:5])
            more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            raise DataError(
                "text",
                f"this model knows {len(self.characters):,} characters, but not {named}{more}",
                hint="leave these characters out, or train with --set tokenizer.kind=bpe, which reads every character",
            ) from None

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
        return tiktoken.Encoding("gpt", pat_str=self.pattern, mergeable_ranks=ranks, special_tokens={})

    def encode(self, text: str) -> list[int]:
        _utf8(text)
        return [i for piece in pieces(text) for i in self.encoding.encode_ordinary(piece)]

    def to_dict(self) -> dict[str, Any]:
        tokens = " ".join(base64.b64encode(token).decode() for token in self.token_bytes)
        return {"kind": self.kind, "pattern": self.pattern, "tokens": tokens}


def make_tokenizer(config: TokenizerConfig, training: Sequence[str], validation: Sequence[str]) -> Tokenizer:
    """The tokenizer that a config asks for; the kinds bpe and char are made from the text.

    Byte pairs are learned from the training part alone. Characters come from both parts, so that the validation part
    can be encoded. Raises EnvironmentFailure when a published vocabulary is neither in the cache nor downloadable.
    """
    if config.kind == "byte":
        return ByteTokenizer()
    if config.kind == "char":
        return CharTokenizer(sorted(set().union(*training, *validation)))
    if config.kind == "tiktoken":
        return _published(config.name)
    return train_byte_pairs(training, config.vocab_size)


def train_byte_pairs(documents: Sequence[str], vocab_size: int) -> BytePairTokenizer:
    """Byte pairs learned from documents: at most vocab_size tokens, end-of-text included."""
    import rustbpe  # only learning byte pairs needs it

    trainer = rustbpe.Tokenizer()  # type: ignore[attr-defined]
    texts = (piece for document in documents for piece in pieces(document))
    trainer.train_from_iterator(texts, vocab_size=vocab_size - 1, pattern=WORD_PATTERN)
    ranked = sorted(trainer.get_mergeable_ranks(), key=lambda pair: pair[1])
    return BytePairTokenizer("bpe", WORD_PATTERN, [bytes(token) for token, _ in ranked])


def tokenizer_from_dict(stored: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that `to_dict` described; raises CheckpointError for anything else."""
    tokenizer: Tokenizer | None = None
    try:
        if stored["kind"] == "byte":
            tokenizer = ByteTokenizer()
        elif stored["kind"] == "char":
            tokenizer = CharTokenizer(stored["characters"])
        elif stored["kind"] in ("bpe", "tiktoken"):
            tokens = [base64.b64decode(token, validate=True) for token in stored["tokens"].split(" ")]
            if {bytes([byte]) for byte in range(256)} <= set(tokens) and len(set(tokens)) == len(tokens):
                tokenizer = BytePairTokenizer(stored["kind"], stored["pattern"], tokens)
                tokenizer.encode("")  # compiles the pattern
    except (KeyError, TypeError, ValueError, AttributeError):
        tokenizer = None
    if tokenizer is None or tokenizer.to_dict() != stored:
        raise CheckpointError("tokenizer", "this is not a tokenizer that gpt writes")
    return tokenizer


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X} at position {error.start}"
        raise DataError("text", f"{half} is half a character; text consists of whole Unicode characters") from None


def _published(name: str) -> BytePairTokenizer:
    """A vocabulary that tiktoken knows by name, from its cache or the network, within NETWORK_TIMEOUT."""
    from tiktoken_ext.openai_public import ENCODING_CONSTRUCTORS  # only published vocabularies need it

    if name not in ENCODING_CONSTRUCTORS:
        raise UsageError(
            "tokenizer.name",
            f"tiktoken has no vocabulary {shown(name)}; use one of {', '.join(ENCODING_CONSTRUCTORS)}",
        )
    # tiktoken downloads without a timeout, so a thread does it that we can stop waiting for
    result: dict[str, Any] = {}

    def construct() -> None:
        try:
            result["vocabulary"] = ENCODING_CONSTRUCTORS[name]()
        except Exception as error:  # whatever the download raises becomes one line below
            result["error"] = error

    thread = threading.Thread(target=construct, daemon=True)
    thread.start()
    thread.join(NETWORK_TIMEOUT)
    if "vocabulary" not in result:
        cause = type(result["error"]).__name__ if "error" in result else f"no answer in {NETWORK_TIMEOUT} s"
        folder = os.environ.get("TIKTOKEN_CACHE_DIR")
        cache = f"the cache TIKTOKEN_CACHE_DIR={folder}" if folder else "a cache, as TIKTOKEN_CACHE_DIR is not set,"
        raise EnvironmentFailure(
            f"tokenizer.name: {name}",
            f"the vocabulary is not in {cache} and cannot be downloaded ({cause})",
            hint="use --set tokenizer.kind=bpe, which needs no network, or fill that cache on a machine with network",
        )
    vocabulary = result["vocabulary"]
    ranks = vocabulary["mergeable_ranks"]
    return BytePairTokenizer("tiktoken", vocabulary["pat_str"], sorted(ranks, key=ranks.__getitem__))
