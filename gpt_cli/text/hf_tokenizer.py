"""Hugging Face tokenizers, stored as tokenizer.json; the library `tokenizers` encodes and decodes.

A tokenizer is built at its first use, so that opening a checkpoint does not need the library.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt_cli.common.limits import TOKENIZER_BYTES, TOKENIZER_IDS
from gpt_cli.common.strict_json import plainly, strict_json
from gpt_cli.errors import CheckpointError, DataError, together, visible
from gpt_cli.text.documents import MAX_PIECE
from gpt_cli.text.hf_tokenizer_rules import covers_text, decoder, problems, require_merges, steps, token_names
from gpt_cli.text.tokenizers import Tokenizer, utf8

if TYPE_CHECKING:
    import tokenizers

# a word ends where a match ends, whatever follows, and NFC joins no characters there
_SPACE = re.compile(r".*[A-Za-z](?= [A-Za-z])", re.DOTALL)
_SPACE_OR_LINE = re.compile(r".*(?:[A-Za-z](?= [A-Za-z])|\S\n(?=[^\W_]))", re.DOTALL)
_LONGEST = 2**20  # characters of a piece, where no place to cut is found
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")


class HuggingFaceTokenizer(Tokenizer):
    """The tokenizer of an imported model, defined by tokenizer.json and, if present, tokenizer_config.json.

    The first use raises CheckpointError for content that gpt refuses or that the library `tokenizers` cannot read.
    """

    kind = "imported"

    def __init__(self, text: str, settings: Mapping[str, Any], end_of_text: int, vocab_size: int):
        self.tokenizer_json, self.settings = text, dict(settings)
        self.end_of_text, self.vocab_size = end_of_text, vocab_size

    @cached_property
    def digest(self) -> str:
        what = ["kept", self.tokenizer_json, self.settings, self.end_of_text]  # as the first versions named this kind
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()

    @cached_property
    def content(self) -> Mapping[str, Any]:
        """The parsed tokenizer.json; raises CheckpointError that names every unsupported part."""
        try:
            content = strict_json(self.tokenizer_json)
            if wrong := [CheckpointError("tokenizer", sentence) for sentence in problems(content)]:
                raise together(wrong)
            names = token_names(content)
            require_merges(content["model"])
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise CheckpointError("tokenizer", f"this is not a tokenizer: {plainly(error)}") from None
        if self.vocab_size != max(names) + 1 or self.end_of_text not in names:
            raise CheckpointError("tokenizer", "its size or its end-of-text does not match its tokens")
        self.names = names
        return content

    @cached_property
    def names(self) -> dict[int, str]:
        """The token strings, as written in tokenizer.json: id -> token; unused ids have no entry."""
        _ = self.content  # which sets `names`
        return self.names

    @cached_property
    def added(self) -> dict[str, dict[str, Any]]:
        """The added tokens, text -> properties, which the tokenizer matches in a text before all other tokens."""
        tokens = {token["content"]: dict(token) for token in self.content.get("added_tokens") or []}
        ids = {name: number for number, name in self.names.items()}
        for token, counts in _of_settings(self.settings):
            if (name := token["content"]) in ids and (counts or name not in tokens):
                tokens[name] = {**dict.fromkeys(_FLAGS, False), **tokens.get(name, {}), **token, "id": ids[name]}
        return tokens

    @cached_property
    def skipped(self) -> frozenset[int]:
        """The ids of special tokens, which decoding leaves out."""
        return frozenset(token["id"] for token in self.added.values() if token.get("special"))

    @property
    def splits_special(self) -> bool:
        """Whether the tokenizer encodes the name of a special token in a text, such as <|im_end|>, as plain text."""
        return self.settings.get("split_special_tokens") is True

    @cached_property
    def starts_with(self) -> list[int]:  # type: ignore[override]
        """The ids that the tokenizer puts before every text, such as a beginning-of-text token."""
        return self.added_ids[0]

    @cached_property
    def added_ids(self) -> tuple[list[int], list[int]]:
        """The special-token ids that transformers adds to every text: (ids before it, ids after it)."""
        ids = {name: number for number, name in self.names.items()}
        additions = [(f"add_{end}_token", token_text(self.settings.get(f"{end}_token"))) for end in ("bos", "eos")]
        if any(isinstance(self.settings.get(key), bool) for key, _ in additions):
            chosen = [[ids[name]] if self.settings.get(key) is True and name in ids else [] for key, name in additions]
            return chosen[0], chosen[1]
        before, after = list[int](), list[int]()
        for step in steps(self.content, "post_processor"):
            target = before
            for piece in step.get("single", ()):
                if "Sequence" in piece:
                    target = after
                    continue
                numbers = step["special_tokens"][piece["SpecialToken"]["id"]]["ids"]
                target += [number for number in numbers if number in self.names]
        return before, after

    @cached_property
    def library(self) -> tokenizers.Tokenizer:
        """The tokenizer object of the library `tokenizers`, with the tokens that transformers adds to it."""
        import tokenizers  # only these need it

        content, added = self.content, self.added
        try:
            built = tokenizers.Tokenizer.from_str(self.tokenizer_json)
            built.no_truncation()
            built.no_padding()
            stored = {token["content"]: token for token in content.get("added_tokens") or []}
            for name, token in added.items():
                if token != stored.get(name):
                    flags = {flag: token.get(flag, False) for flag in _FLAGS}
                    built.add_tokens([tokenizers.AddedToken(name, special=token.get("special", False), **flags)])
            built.encode_special_tokens = self.splits_special
        except Exception as error:  # the library has no kind of its own
            raise CheckpointError("tokenizer", f"the library tokenizers cannot read it: {visible(error)}") from None
        if any(built.token_to_id(name) != token["id"] for name, token in added.items()):
            raise CheckpointError("tokenizer", "the ids of its added tokens do not follow those of its vocabulary")
        return built

    @cached_property
    def token_bytes(self) -> list[bytes]:  # type: ignore[override]
        """The bytes that each id decodes to inside a text; b'' for end-of-text, `starts_with` and unused ids."""
        table = [b""] * self.vocab_size
        bytes_of, _ = decoder(self.content)
        for number, name in self.names.items():
            table[number] = bytes_of(name)
        for number in (self.end_of_text, *self.starts_with):
            table[number] = b""
        return table

    @cached_property
    def _dropped(self) -> frozenset[int]:
        """Bytes that the library silently drops from a text, because this byte-level BPE has no token for them."""
        model, cutting = self.content["model"], steps(self.content, "pre_tokenizer")
        if model.get("unk_token") or "merges" not in model or all(step["type"] != "ByteLevel" for step in cutting):
            return frozenset()
        return frozenset(range(256)) - {content[0] for content in self.token_bytes if len(content) == 1}

    def array(self, text: str) -> np.ndarray:
        content = utf8(text)
        if lost := self._dropped and self._dropped & set(content):
            named = ", ".join(f"0x{byte:02x}" for byte in sorted(lost)[:5])
            raise DataError("text", f"the tokenizer of this model has no token for bytes of the text: {named}")
        library = self.library
        try:
            # three times as fast as `encode`, because it keeps no offsets
            (encoded,) = library.encode_batch_fast([text], add_special_tokens=False)
        except Exception as error:  # the library has no kind of its own
            raise DataError("text", f"the tokenizer of this model cannot encode it: {visible(error)}") from None
        return np.array(encoded.ids, np.uint32)

    def continued(self, text: str) -> np.ndarray:
        if self._cuts[1]:  # the library replaces the space by a mark
            text = text.removeprefix(" ")
        return self.array(text)

    @cached_property
    def _cuts(self) -> tuple[re.Pattern[str] | None, bool]:
        """(Pattern that ends where a cut changes no token ids, or None; whether text after a cut loses a space)."""
        first, cutting = steps(self.content, "normalizer"), steps(self.content, "pre_tokenizer")
        replaced = {step["pattern"]["String"]: step["content"] for step in first if step["type"] == "Replace"}
        begins = [step["prepend"] for step in first if step["type"] == "Prepend"]
        crossing = any(len(pattern) > 1 and re.search(r"\s", pattern) for pattern in replaced)
        for name, token in self.added.items():
            ends = re.fullmatch(r"[A-Za-z].*|.*[A-Za-z]", name, re.DOTALL)
            crossing |= bool(re.search(r"\S\s|\s\S", name))
            crossing |= bool(ends) and any(map(token.get, ("lstrip", "rstrip", "single_word")))
        if crossing or len(begins) > 1 or (begins and replaced.get(" ") != begins[0]):
            return None, False
        marks = any(step["type"] == "Metaspace" for step in cutting)
        into_words = any(_cuts_words(step) for step in cutting)
        plain = (name for name in self.names.values() if name not in self.added)
        if not into_words and any(re.search("[^▁ Ġ][▁ Ġ]", name) for name in plain):
            return None, False
        prefixed = begins or marks or any(step.get("add_prefix_space") for step in cutting)
        return _SPACE if prefixed or not into_words else _SPACE_OR_LINE, bool(begins)

    def cut(self, text: str, at: int) -> int | None:
        """Return the end of the piece that starts at `at` in a long text; None if the rest of the text is one piece.

        Pieces end where a cut changes no token id. If no such place is found, a piece has _LONGEST characters.
        """
        pattern, window = self._cuts[0], MAX_PIECE
        while len(text) - at > window + 1:
            if pattern and (match := pattern.match(text, at, at + window + 2)):
                return match.end()
            if window == _LONGEST:
                return at + window
            window *= 2
        return None

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        return b"".join(self.token_bytes[i] for i in ids if i not in self.skipped)

    def decode(self, ids: Iterable[int], *, begins: bool = True) -> str:
        if not begins:
            return super().decode(ids, begins=False)
        return self.library.decode([i for i in ids if i != self.end_of_text], skip_special_tokens=True)

    def at_the_start(self, content: bytes) -> bytes:
        _, loses_space = decoder(self.content)
        return content.removeprefix(b" ") if loses_space else content

    def token_text(self, token_id: int) -> str:
        if token_id in self.skipped or token_id == self.end_of_text:
            return self.names[token_id]
        return super().token_text(token_id)

    def to_dict(self) -> dict[str, Any]:
        sizes = {"end_of_text": self.end_of_text, "vocab_size": self.vocab_size}
        return {"kind": self.kind, **sizes, "files": self._packed}

    @cached_property
    def _packed(self) -> str:
        both = json.dumps([self.tokenizer_json, self.settings], ensure_ascii=False)
        return base64.b64encode(zlib.compress(both.encode("utf-8", "surrogatepass"))).decode()

    @classmethod
    def of_dict(cls, stored: Mapping[str, Any]) -> HuggingFaceTokenizer:
        """Build a tokenizer from the data of `to_dict`; raise ValueError, KeyError or TypeError for anything else."""
        sizes = stored["end_of_text"], stored["vocab_size"]
        if not all(type(size) is int for size in sizes) or not 0 <= sizes[0] < sizes[1] <= TOKENIZER_IDS:
            raise ValueError("its size is not that of a tokenizer")
        unpacking = zlib.decompressobj()
        try:
            content = unpacking.decompress(base64.b64decode(stored["files"], validate=True), 2 * TOKENIZER_BYTES)
        except zlib.error as error:
            raise ValueError("it is not compressed") from error
        if not unpacking.eof:
            raise ValueError("it is too large")
        text, settings = strict_json(content.decode("utf-8"))
        if not isinstance(text, str) or not isinstance(settings, dict) or len(text) > TOKENIZER_BYTES:
            raise TypeError("it is not a text and an object")
        tokenizer = cls(text, settings, *sizes)
        tokenizer._packed = stored["files"]  # another version of zlib may compress otherwise
        return tokenizer


def _of_settings(settings: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield (token, whether its flags override those in tokenizer.json) for each token of a tokenizer_config.json."""
    others = [settings.get(key) for key in ("additional_special_tokens", "extra_special_tokens")]
    lists = [token for one in others if isinstance(one, list) for token in one]
    special = list(filter(None, map(token_text, [*map(settings.get, _NAMED), *lists])))
    listed = settings.get("added_tokens_decoder")
    for token in listed.values() if isinstance(listed, dict) else ():
        if isinstance(token, dict) and (name := token_text(token)):
            flags = {key: token[key] for key in (*_FLAGS, "special") if isinstance(token.get(key), bool)}
            yield {"content": name, **flags, "special": flags.get("special", False) or name in special}, True
    for name in special:
        yield {"content": name, "special": True}, False


def token_text(token: Any) -> str | None:
    """Return the text of a token in tokenizer_config.json (a string, or an object with flags); None without text."""
    name = token.get("content") if isinstance(token, dict) else token
    return name if isinstance(name, str) and name else None


def _cuts_words(step: Mapping[str, Any]) -> bool:
    """Return whether a pre-tokenizer step cuts between a word and a space, and also between a newline and a word."""
    if step["type"] == "Split":
        return covers_text(step)
    by_pattern = step["type"] == "ByteLevel" and step.get("use_regex", True)
    return by_pattern or step["type"] in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")
