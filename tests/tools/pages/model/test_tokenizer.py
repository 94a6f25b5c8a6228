"""Ids that the page's tokenizer gives, in headless Chromium, and those of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Error
from support.corpora import Texts
from support.faults import scaled
from support.scripts import RunScript
from support.tokenizers import ALL_TOKENIZERS, characters, content_of, texts

from gpt_cli.config import TokenizerConfig
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.text.split_patterns import WORD_PATTERN
from gpt_cli.text.tokenizers import BytePairTokenizer, CharTokenizer
from gpt_cli.text.train_tokenizer import make_tokenizer
from gpt_cli.tools.exchange.page_data import tokenizer_content

SCRIPTS = [f"model/engine/{name}.js" for name in ("refusal", "tokenizer", "byte_pairs", "kept")]
ENCODE = """({ content, texts }) => {
  const tokenizer = openTokenizer(content);
  return texts.map((text) => tokenizer.encode(text));
}"""

BYTES = [bytes([byte]) for byte in range(256)]


def encoded(run_script: RunScript, content: dict[str, str], texts: list[str]) -> list[list[int]]:
    return run_script(SCRIPTS, ENCODE, {"content": content, "texts": texts})


@pytest.mark.parametrize("kind", ALL_TOKENIZERS)
def test_ids_are_those_of_ours(run_script: RunScript, kind: str, tally: Callable[[str, int], None]) -> None:
    ours, asked = ALL_TOKENIZERS[kind], texts(scaled(3000))
    asked += [] if kind == "char" else characters(scaled(3000))
    assert encoded(run_script, content_of(kind), asked) == [ours.encode(text) for text in asked]
    tally("texts have the same ids on the page", len(asked))


def test_ids_of_a_published_vocabulary_are_those_of_ours(run_script: RunScript) -> None:
    try:
        ours = make_tokenizer(TokenizerConfig(kind="tiktoken", name="gpt2"), Texts([]), Texts([]))
    except EnvironmentFailure:
        pytest.skip("gpt2 is not in the cache that TIKTOKEN_CACHE_DIR names, and there is no network")
    content, asked = tokenizer_content(ours), texts(scaled(3000)) + characters(scaled(3000))
    assert len(json.dumps(content)) < 550_000
    assert encoded(run_script, content, asked) == [ours.encode(text) for text in asked]


@pytest.mark.parametrize("kind", ["bpe", "cl100k"])
def test_long_runs_and_texts_of_several_pieces_have_the_same_ids(run_script: RunScript, kind: str) -> None:
    lines = "".join(f"{number} 行{'x' * (number % 90)}\n" for number in range(3000))
    asked = [character * 35_000 for character in ("a", " ", "\n", "今", "1", "'", "\u0301", "🙂")]
    asked += [lines, lines.replace("\n", " "), "\n" + "y" * 40_000 + "\n" + "z" * 32_767 + "🙂\n", "ab今 " * 8192]
    assert encoded(run_script, content_of(kind), asked) == [ALL_TOKENIZERS[kind].encode(text) for text in asked]


def test_merges_of_equal_rank_begin_at_the_first_and_long_tokens_are_found(run_script: RunScript) -> None:
    """700 are 512 + 128 + 32 + 16 + 8 + 4; bcd is found whole alone, since no two tokens make it."""
    doubled = [b"a" * 2**power for power in range(1, 10)]
    ours = BytePairTokenizer("bpe", WORD_PATTERN, [*BYTES, *doubled, b"bcd", b"x" * 255, b"y" * 600])
    asked = ["aaa", "a" * 700, "bcd", "bcde", "x" * 255, "y" * 600, "x" * 256]
    assert (ids := encoded(run_script, tokenizer_content(ours), asked)) == [ours.encode(text) for text in asked]
    assert ids[:4] == [[256, 97], [264, 262, 260, 259, 258, 257], [265], [98, 99, 100, 101]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ab\x1bé今", '[3,[["U+001B",2],["“é” U+00E9",3],["“今” U+4ECA",4]],0,3]'),
        ("a🙂" + "🙂今" * 7, '[3,[["“🙂” U+1F642",1],["“今” U+4ECA",3]],0,15]'),
        ("12345671", '["“5” U+0035",4]],2,8]'),
    ],
)
def test_unknown_characters_are_named_once_with_their_first_position(
    run_script: RunScript, text: str, told: str
) -> None:
    with pytest.raises(Error, match=f"unknownCharacters.*{re.escape(told)}"):
        encoded(run_script, tokenizer_content(CharTokenizer("abc")), [text])


@pytest.mark.parametrize("kind", ["byte", "bpe", "char"])
def test_half_a_character_is_an_error_and_not_replaced(run_script: RunScript, kind: str) -> None:
    with pytest.raises(Error, match=re.escape('halfCharacter [["U+DCE9",2]]')):
        run_script(SCRIPTS, '(content) => openTokenizer(content).encode("🙂a\\udce9")', content_of(kind))
