"""Tokenizers to compare with other implementations, and texts that tell them apart."""

import os
import pickle
import random
import warnings
from functools import cache

from gpt_cli.text.split_patterns import (
    CL100K_PATTERN,
    GPT2_PATTERN,
    O200K_PATTERN,
    OLD_CL100K_PATTERN,
    R50K_PATTERN,
    WORD_PATTERN,
)
from gpt_cli.text.tokenizers import BytePairTokenizer, ByteTokenizer, CharTokenizer, Tokenizer
from gpt_cli.text.train_tokenizer import tokenizer_from_dict, train_byte_pairs
from gpt_cli.tools.exchange.page_data import tokenizer_content

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


def texts(count: int) -> list[str]:
    """The hostile ones, and random mixtures of parts."""
    draws = random.Random(5)
    return HOSTILE + ["".join(draws.choices(PARTS, k=draws.randint(1, 30))) for _ in range(count)]


def learned(texts: list[str], vocab_size: int, pattern: str = WORD_PATTERN) -> BytePairTokenizer:
    """Byte pairs learned in a fork: a module asks while it is imported, and this process begins no threads.

    In a test it might never end: a fork lacks the threads of the library that an earlier test has begun.
    """
    read, write = os.pipe()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of forks beside threads
        pid = os.fork()
    if pid == 0:
        with open(write, "wb") as file:
            pickle.dump(train_byte_pairs(texts, vocab_size, pattern).to_dict(), file)
        os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        tokenizer = tokenizer_from_dict(pickle.load(file))
    os.waitpid(pid, 0)
    assert isinstance(tokenizer, BytePairTokenizer)
    return tokenizer


LEARNED = learned([*HOSTILE, "The value of the function is the value of its argument. 今天天气很好。" * 20], 500)
TOKENIZERS: dict[str, Tokenizer] = {
    "bpe": LEARNED,
    "gpt2": BytePairTokenizer("tiktoken", R50K_PATTERN, LEARNED.token_bytes),
    "cl100k": BytePairTokenizer("tiktoken", CL100K_PATTERN, LEARNED.token_bytes),
    "byte": ByteTokenizer(),
    "char": CharTokenizer(sorted(set("".join([*HOSTILE, *PARTS])))),
}

_PATTERNS = {"gpt2-paper": GPT2_PATTERN, "llama3": OLD_CL100K_PATTERN, "o200k": O200K_PATTERN}
ALL_TOKENIZERS = TOKENIZERS | {
    name: BytePairTokenizer("bpe", pattern, LEARNED.token_bytes) for name, pattern in _PATTERNS.items()
}


@cache
def content_of(kind: str) -> dict[str, str]:
    """What a page gets of one of ALL_TOKENIZERS; to read all of Unicode takes a second."""
    return tokenizer_content(ALL_TOKENIZERS[kind])


def characters(count: int, length: int = 40) -> list[str]:
    """Texts of random characters: of all planes, of those that have scripts, of ASCII; some repeated."""
    draws, found = random.Random(6), list[str]()
    for _ in range(count):
        highest = draws.choice((0x80, 0x250, 0x3100, 0xD800, 0x20000, 0x110000))
        points = [point for point in (draws.randrange(highest) for _ in range(length)) if not 0xD800 <= point < 0xE000]
        found.append("".join(chr(point) * draws.choice((1, 1, 1, 1, 2, 4)) for point in points))
    return found
