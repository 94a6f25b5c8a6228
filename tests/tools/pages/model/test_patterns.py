"""Patterns as JavaScript matches them, in headless Chromium, and as the library tiktoken does."""

from __future__ import annotations

import itertools
import random

import pytest
from support.scripts import RunScript

from gpt_cli.text.split_patterns import CL100K_PATTERN, PATTERNS, WORD_PATTERN
from gpt_cli.text.tokenizers import BytePairTokenizer
from gpt_cli.tools.exchange.page_data import javascript_pattern, tokenizer_content

SCRIPTS = ["model/engine/tokenizer.js", "model/engine/byte_pairs.js", "model/engine/kept.js"]
# of each class of the patterns two: letters of both cases, digits, marks, quotes, white space, line ends
LETTERS = "sLt١7/'\n\r \u00a0é"
# every text of up to three of these letters is a token, so that ids show where a text was cut
TOKENS = [bytes([byte]) for byte in range(256)] + [
    text
    for length in (1, 2, 3)
    for letters in itertools.product(LETTERS, repeat=length)
    if len(text := "".join(letters).encode()) > 1
]
ENCODE = """({ content, texts }) => {
  const tokenizer = openTokenizer(content);
  return texts.map((text) => tokenizer.encode(text));
}"""


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_text_is_cut_at_the_same_places(run_script: RunScript, pattern: str) -> None:
    draws = random.Random(8)
    texts = ["".join(draws.choices(LETTERS, k=draws.randint(0, 16))) for _ in range(1000)]
    ours = BytePairTokenizer("bpe", pattern, TOKENS)
    found = run_script(SCRIPTS, ENCODE, {"content": tokenizer_content(ours), "texts": texts})
    assert [text for text, ids in zip(texts, found, strict=True) if ids != ours.encode(text)] == []


def test_classes_are_those_of_the_library_and_not_of_the_browser() -> None:
    """White space of Unicode has U+0085, which that of JavaScript lacks; the long s is an s without regard to case."""
    assert javascript_pattern(WORD_PATTERN).endswith(
        r"|[\u{9}-\u{D}\u{20}\u{85}\u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}-\u{2029}\u{202F}\u{205F}\u{3000}]+"
    )
    assert javascript_pattern(CL100K_PATTERN).startswith(r"'(?:[DMS-Tdms-t\u{17F}]|[Ll][Ll]|[Vv][Ee]|[Rr][Ee])|")
