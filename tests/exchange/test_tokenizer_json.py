from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from support.exchange import sharp_checkpoint
from support.faults import scaled
from tiktoken_ext.openai_public import r50k_pat_str

from gpt_cli.exchange.tokenizer_json import byte_letters, merges, tokenizer_json
from gpt_cli.exchange.writing import write_for_transformers
from gpt_cli.text.tokenizer import (
    WORD_PATTERN,
    BytePairTokenizer,
    ByteTokenizer,
    CharTokenizer,
    Tokenizer,
    train_byte_pairs,
)

# what splits, joins or hides characters, and what looks like something else
HOSTILE = [
    "",
    " ",
    "Hello, world!",
    "  leading and trailing   ",
    "a  b   c\td\n\n\ne \n f",
    "line\r\nline\rline",
    "it's we'll I'VE they're 'tis ''s",
    "1 12 123 1234 12345 3.14159 ١٢٣٤ १२३४ １２３４",
    "今天天气很好。我们去公园吧！",
    "中文English混排 2026年11月",
    "👩‍👩‍👧‍👦 👍🏽 🇨🇳 ☺️ 🙂🙂",
    "e\u0301 a\u0308\u0304 \u0301 Z͑ͫ̓ͪ̂ͫ",
    "\0 nul \x1b[2J escape",
    "\u0085 \u2028 \u2029 \u00a0 \u3000 \u200b \ufeff \u001c",
    "<|endoftext|>",
    "before<|endoftext|>after <|endoftext|><|endoftext|>",
    "<|unknown|> [UNK] </s> <s>",
    "Ġ Ċ ĠThe ĉ ▁",
    "\n",
    " \n \n ",
    "ab" * 300 + " " * 300 + "\n" * 30,
]
PARTS = ["The ", "value", " of", "  ", "\n", "\t", "123", "4567", "你好", "。", "é", "e\u0301", "🙂", "\u200d", "'s", "_x", "<|", "|>", "\u00a0", "ß", "\0"]  # fmt: skip
# as the library tiktoken publishes it
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"


def texts() -> list[str]:
    """The hostile ones, and 3,000 random mixtures of parts, of which some at this scale."""
    random.seed(5)
    return HOSTILE + ["".join(random.choices(PARTS, k=random.randint(1, 30))) for _ in range(scaled(3000))]


LEARNED = train_byte_pairs(
    [*HOSTILE, "The value of the function is the value of its argument. 今天天气很好。" * 20], 500
)
TOKENIZERS: dict[str, Tokenizer] = {
    "bpe": LEARNED,
    "gpt2": BytePairTokenizer("tiktoken", r50k_pat_str, LEARNED.token_bytes),
    "cl100k": BytePairTokenizer("tiktoken", CL100K, LEARNED.token_bytes),
    "byte": ByteTokenizer(),
    "char": CharTokenizer(sorted(set("".join([*HOSTILE, *PARTS])))),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_ids_are_those_of_ours_for_hostile_texts(kind: str, transformers: Any, tmp_path: Path) -> None:
    ours = TOKENIZERS[kind]
    write_for_transformers(tmp_path / "hf", sharp_checkpoint("model.num_blocks=1", tokenizer=ours))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert (len(theirs), theirs.eos_token_id, theirs.bos_token_id) == (
        ours.vocab_size,
        ours.end_of_text,
        ours.end_of_text,
    )
    theirs.model_max_length = 10**6  # it only warns
    for text in texts():
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
    ids = [*"今".encode()[:2], 255, 65]
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
