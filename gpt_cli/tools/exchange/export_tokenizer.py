"""Encode gpt_cli tokenizers as tokenizer.json and tokenizer_config.json, which tokenizers and transformers read."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from gpt_cli.common.limits import TOKENIZER_WORK
from gpt_cli.config import Config
from gpt_cli.errors import GptError
from gpt_cli.text.chat_templates import template_for
from gpt_cli.text.hf_tokenizer import HuggingFaceTokenizer, token_text
from gpt_cli.text.split_patterns import as_oniguruma
from gpt_cli.text.tokenizers import END_OF_TEXT, BytePairTokenizer, CharTokenizer, Tokenizer, byte_letters, utf8
from gpt_cli.text.train_tokenizer import tokenizer_from_dict

PADDING = "<|pad|>"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def padding_id(tokenizer: Tokenizer) -> int:
    """Return the padding id: of a Hugging Face pad_token, or the byte 0xFF, which UTF-8 never uses; else end-of-text.

    Data collators exclude padding from the loss, so a model that is padded with end-of-text never learns end-of-text.
    """
    end = tokenizer.end_of_text
    if isinstance(tokenizer, HuggingFaceTokenizer):
        return tokenizer.added.get(token_text(tokenizer.settings.get("pad_token")) or "", {"id": end})["id"]
    spare = [number for number, token in enumerate(tokenizer.token_bytes) if b"\xff" in token]
    return spare[0] if len(spare) == 1 and PADDING.encode() not in tokenizer.token_bytes else end


def tokenizer_json(tokenizer: Tokenizer, padded: bool = True) -> dict[str, Any]:
    """Return the content of a tokenizer.json that splits and encodes every text as `tokenizer` does.

    End-of-text is an added token with the last id; if it were in the vocabulary, its name in a text would be encoded as
    that token. Without `padded`, the file has no padding token, as in exports of earlier versions.
    """
    padding = padding_id(tokenizer) if padded else tokenizer.end_of_text
    if isinstance(tokenizer, CharTokenizer):
        vocabulary = {character: i for i, character in enumerate(tokenizer.characters)}
        # the unknown one is in no vocabulary, so that an unknown character is an error
        model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<|unknown|>"}
        cut, decoder = split(r"[\s\S]"), {"type": "Fuse"}
    else:
        model = _byte_pairs(tokenizer.token_bytes, padding)
        cut, decoder = BYTE_LEVEL, BYTE_LEVEL
        if isinstance(tokenizer, BytePairTokenizer):
            cut = {"type": "Sequence", "pretokenizers": [split(as_oniguruma(tokenizer.pattern)), BYTE_LEVEL]}
    added = {padding: PADDING, tokenizer.end_of_text: END_OF_TEXT}
    return pipeline(model, cut, decoder, [(number, name, True) for number, name in added.items()])


def pipeline(
    model: Any, cut: Any, decoder: Any, added: Iterable[tuple[int, str, bool]], after: Any = None
) -> dict[str, Any]:
    """Return a tokenizer.json; `cut` pre-tokenizes, `after` post-processes, `added` lists (id, text, is special)."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": name, **flags, "special": special} for number, name, special in added
        ],
        "normalizer": None,
        "pre_tokenizer": cut,
        "post_processor": after,
        "decoder": decoder,
        "model": model,
    }


def rebuilt(info: Mapping[str, Any], names: Sequence[str], *, by_letters: bool) -> Tokenizer | None:
    """Rebuild the gpt_cli tokenizer of an export, to be compared with its file; None if impossible or too slow.

    `info` is the kind and pattern that `gpt export` stored, `names` are the tokens by id; with `by_letters`, each
    letter of a name stands for one byte.
    """
    if sum(len(name) ** 2 for name in names) > TOKENIZER_WORK:
        return None
    kind, letters, content = info.get("kind"), {letter: byte for byte, letter in enumerate(byte_letters())}, {}
    try:
        tokens = [bytes(map(letters.__getitem__, name)) if by_letters else utf8(name) for name in names]
        if kind == "char":
            content = {"characters": b"".join(tokens).decode("utf-8")}
        elif kind != "byte":
            packed = " ".join(base64.b64encode(token).decode() for token in tokens)
            content = {"pattern": info.get("pattern"), "tokens": packed}
        return tokenizer_from_dict({"kind": kind, **content})
    except (GptError, KeyError, TypeError, ValueError):
        return None


def chat_template(config: Config, tokenizer: Tokenizer) -> str | None:
    """Return the Jinja template of a model trained on chats; None for other models or if the tokenizer has the same."""
    if config.data.loss is None:
        return None
    template = template_for(config.data.template, tokenizer)
    has_own = isinstance(tokenizer, HuggingFaceTokenizer) and "chat_template" in tokenizer.settings
    return None if has_own and template_for(None, tokenizer) == template else template.jinja(tokenizer)


def tokenizer_files(
    tokenizer: Tokenizer, context_length: int, template: str | None = None, padding_side: str = "left"
) -> tuple[bytes, bytes]:
    """Return tokenizer.json and tokenizer_config.json as bytes; a Hugging Face tokenizer keeps its own tokenizer.json.

    With a chat `template`, the tokenizer recognizes special tokens in a text, since the template writes them as text.
    """
    usual = {
        # without this class, AutoTokenizer would put GPT-2's pattern in the place of ours
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        # the text <|endoftext|> is encoded as plain text, as with us
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_length,
        # by default there are token_type_ids too, for which GPT-2 would add an embedding
        "model_input_names": ["input_ids", "attention_mask"],
    }
    chat = {} if template is None else {"chat_template": template, "split_special_tokens": False}
    if isinstance(tokenizer, HuggingFaceTokenizer):
        settings = tokenizer.settings
        if not settings.keys() - {"chat_template"}:  # from a file that has no more to say
            settings = {
                **usual,
                "bos_token": tokenizer.token_text(tokenizer.begin([])[0]),
                "eos_token": tokenizer.token_text(tokenizer.end_of_text),
                "split_special_tokens": False,
                **settings,
            }
        return tokenizer.tokenizer_json.encode("utf-8"), json_bytes({**settings, **chat})
    pad = END_OF_TEXT if padding_id(tokenizer) == tokenizer.end_of_text else PADDING
    settings = {**usual, "pad_token": pad, "padding_side": padding_side, **chat}
    return json_bytes(tokenizer_json(tokenizer)), json_bytes(settings)


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Encode `content` as a JSON file in UTF-8."""
    return json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False).encode("utf-8") + b"\n"


def merges(token_bytes: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the pairs that byte pair encoding merges, in the order of their ranks.

    A token that was learned from text merges two earlier tokens. In a published vocabulary, a token may remain in more
    than two parts; then all pairs of tokens that form it are listed, since tiktoken merges any (its issue 60).
    """
    ranks = {token: rank for rank, token in enumerate(token_bytes)}
    pairs: list[tuple[bytes, bytes]] = []
    for rank, token in enumerate(token_bytes):
        if len(token) == 1:
            continue
        parts = _parts(token, ranks, rank)
        if len(parts) == 2:
            pairs.append((parts[0], parts[1]))
        else:
            splits = ((token[:i], token[i:]) for i in range(1, len(token)))
            known_splits = [(one, two) for one, two in splits if one in ranks and two in ranks]
            pairs += sorted(known_splits, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return pairs


def _parts(token: bytes, ranks: dict[bytes, int], below: int) -> list[bytes]:
    """Encode `token` with the merges of ranks below `below`, its own rank, and return the parts that remain."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 1:
        pairs = [ranks.get(one + two, below) for one, two in pairwise(parts)]
        rank = min(pairs)
        if rank >= below:
            break
        at = pairs.index(rank)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _byte_pairs(token_bytes: Sequence[bytes], padding: int) -> dict[str, Any]:
    letters = byte_letters()

    def letters_of(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": True,  # as tiktoken does: a piece that is a token is that token
        "vocab": {PADDING if rank == padding else letters_of(token): rank for rank, token in enumerate(token_bytes)},
        "merges": [[letters_of(one), letters_of(two)] for one, two in merges(token_bytes)],
    }


def split(pattern: str) -> dict[str, Any]:
    """Return the pre-tokenizer step that splits a text into the matches of `pattern` and the text between them."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
