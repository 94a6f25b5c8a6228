from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from support.exchange import sharp_checkpoint
from support.faults import scaled
from support.tokenizers import LEARNED, TOKENIZERS, texts

from gpt_cli.text.split_patterns import BY_NAME, WORD_PATTERN
from gpt_cli.text.tokenizer import byte_letters
from gpt_cli.text.tokenizers import BytePairTokenizer, ByteTokenizer, CharTokenizer
from gpt_cli.tools.exchange.export_hf import write_for_transformers
from gpt_cli.tools.exchange.export_tokenizer import merges, tokenizer_json

_PATTERNS = {name: BytePairTokenizer("bpe", BY_NAME[name], LEARNED.token_bytes) for name in ("llama3", "qwen2")}


@pytest.mark.parametrize("kind", [*TOKENIZERS, *_PATTERNS])
def test_ids_are_those_of_ours_for_hostile_texts(kind: str, transformers: Any, tmp_path: Path) -> None:
    ours = (TOKENIZERS | _PATTERNS)[kind]
    write_for_transformers(tmp_path / "hf", sharp_checkpoint("model.num_blocks=1", tokenizer=ours))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert len(theirs) == ours.vocab_size
    assert theirs.eos_token_id == theirs.bos_token_id == ours.end_of_text
    theirs.model_max_length = 10**6  # it only warns
    for text in texts(scaled(3000)):
        ids = ours.encode(text)
        assert theirs.encode(text) == ids
        assert theirs.decode(ids) == ours.decode(ids)
    assert set(theirs("The value")) == {"input_ids", "attention_mask"}
    assert theirs.decode([ours.end_of_text]) == "<|endoftext|>"


def test_an_unknown_character_is_an_error() -> None:
    theirs = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(CharTokenizer("ab"))))
    assert theirs.encode("abba").ids == [0, 1, 1, 0]
    with pytest.raises(Exception, match="UNK"):
        theirs.encode("abc")


def test_bytes_that_are_no_character_are_the_same_text() -> None:
    ours = ByteTokenizer()
    theirs = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(ours)))
    ids = [*"今".encode()[:2], 254, 65]
    assert theirs.decode(ids) == ours.decode(ids) == "\ufffd\ufffdA"


def test_visible_bytes_are_their_own_letters() -> None:
    letters = byte_letters()
    assert (letters[ord("A")], letters[0], letters[ord(" ")], letters[ord("\n")]) == ("A", "Ā", "Ġ", "Ċ")
    assert letters[0xAD] == "Ń"  # a soft hyphen, the last that is not visible
    assert len(set(letters)) == 256


BYTES = [bytes([byte]) for byte in range(256)]


def test_a_token_is_the_merge_of_two_earlier_ones() -> None:
    assert merges([*BYTES, b"th", b"he", b"the", b"other"]) == [(b"t", b"h"), (b"h", b"e"), (b"th", b"e")]
    # "other" is o-the-r: no two tokens make it, so it is found whole or not at all


def test_of_a_token_in_three_parts_every_split_is_listed() -> None:
    """bc is merged first, so that abcd is a, bc, d; ab and cd make it too."""
    tokens = [*BYTES, b"bc", b"ab", b"cd", b"abcd"]
    assert merges(tokens)[-1] == (b"ab", b"cd")
    ours = BytePairTokenizer("tiktoken", WORD_PATTERN, tokens)
    theirs = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(ours)))
    for text in ("abcd", "abcdx", "xabcd", "abab cdcd"):
        assert theirs.encode(text).ids == ours.encode(text)
