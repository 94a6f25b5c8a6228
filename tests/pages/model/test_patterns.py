"""Patterns as JavaScript matches them, in headless Chromium, and as the library tiktoken does."""

from __future__ import annotations

import itertools
import random

import pytest
from support.scripts import RunScript

from gpt_cli.errors import CheckpointError
from gpt_cli.exchange.javascript_pattern import javascript_pattern
from gpt_cli.exchange.tokenizer_page import tokenizer_content
from gpt_cli.text.tokenizer import BytePairTokenizer

SCRIPTS = ["model/engine/tokenizer.js", "model/engine/byte_pairs.js"]
LETTERS = "aS1 \n'"
# every text of up to four of these letters is a token, so that ids show where a text was cut
TOKENS = [bytes([byte]) for byte in range(256)] + [
    "".join(letters).encode() for length in (2, 3, 4) for letters in itertools.product(LETTERS, repeat=length)
]
PATTERNS = {
    "greedy": r"a+S|S*1|[\s\S]",
    "lazy": r"a+?S|S*?1|a??a1|[\s\S]",
    "possessive": r"a++S|S*+1|a?+a|1{1,2}+1|[\s\S]",
    "atomic": r"(?>a|aS)1|(?>S+|1)'|[\s\S]",
    "counted": r"a{2}|S{2,}1|1{1,2}a|'{0,1} {3}|[\s\S]",
    "looking": r"(?=aS)[a-zS]+|a(?!1)a|(?<=S)1+|(?<!a)'|[\s\S]",
    "case": r"(?i:s1|A+)|(?i:'(?:s|A))|S+|[\s\S]",
    "ends": r"\A1+|^'|a+$|S+\z|[\s\S]",
    "classes": r"[[:alpha:]&&[^a]]+|[^a\]\[1]|[]a-c]+|\d|[\s\S]",
    "escapes": r"\x61\x{53}|\u{31}+|\x20|\'|\n|\w|\pL|\p{Lu}|\P{N}|[\s\S]",
    "dot": r".+",
    "skips": r"a+|1",
    "alternatives in groups": r"(?:a|aS|aSS)+1?|(?:S|(?:1|'1)+ )|[\s\S]",
    "none matches": r"[^\s\S]|[\s\S]",
}
ENCODE = """({ content, texts }) => {
  const tokenizer = openTokenizer(content);
  return texts.map((text) => tokenizer.encode(text));
}"""


def cut_differently(run_script: RunScript, pattern: str, num_texts: int) -> list[str]:
    """Of random texts those whose ids differ."""
    draws = random.Random(8)
    texts = ["".join(draws.choices(LETTERS, k=draws.randint(0, 12))) for _ in range(num_texts)]
    ours = BytePairTokenizer("bpe", pattern, TOKENS)
    found = run_script(SCRIPTS, ENCODE, {"content": tokenizer_content(ours), "texts": texts})
    return [text for text, ids in zip(texts, found, strict=True) if ids != ours.encode(text)]


@pytest.mark.parametrize("name", PATTERNS)
def test_a_text_is_cut_at_the_same_places(run_script: RunScript, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    latin = "".join(map(chr, range(0x250)))  # all of Unicode would take a second
    monkeypatch.setattr("gpt_cli.exchange.javascript_pattern._Reading.every_character", latin)
    assert cut_differently(run_script, PATTERNS[name], 300) == []


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"a*|[\s\S]", "a match of no characters"),
        (r"a|(?=S)", "a match of no characters"),
        (r"(?:a|S?)+1", 'a repetition of what may be empty, "(?:a|S?)+"'),
        (r"(?:^)*a", 'a repetition of what may be empty, "(?:^)*"'),
        (r"a+*", 'a repetition of what may be empty, "a+"'),
        (r"\ba|[\s\S]", 'the escape "\\b"'),
        (r"\<a|[\s\S]", 'the escape "\\<"'),
        (r"(a)\1|[\s\S]", 'the escape "\\1"'),
        (r"\G.|\X", 'the escape "\\G"'),
        (r"(?<name>a)", 'the group "(?<n"'),
        (r"(?i)a", 'the group "(?i)"'),
        (r"(?s:.)", 'the group "(?s:"'),
        (r"(?<=a{2}+)S", "a lookbehind with what is never tried again"),
        (r"(?<=(?>a))S", "a lookbehind with what is never tried again"),
        (r"a{,2}S", '"{" in an unusual place'),
        (r"[a", "a class that never closes"),
        (r"(?:a", "a group that never closes"),
        (r"a)", "a bracket that closes nothing"),
    ],
)
def test_what_a_browser_may_match_differently_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        javascript_pattern(pattern)
    assert raised.value.where == "tokenizer"
    assert raised.value.sentence.startswith("a page cannot promise the same tokens: the pattern ")
    assert raised.value.sentence.endswith(f" has {reason}")
    assert raised.value.hint == "--format hf"


def test_classes_are_those_of_the_library_and_not_of_the_browser() -> None:
    """White space of Unicode has U+0085, which that of JavaScript lacks; the long s is an s without regard to case."""
    assert javascript_pattern(r"\s") == (
        r"[\u{9}-\u{D}\u{20}\u{85}\u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}-\u{2029}\u{202F}\u{205F}\u{3000}]"
    )
    assert javascript_pattern(r"(?i:s)x++") == r"(?:[Ss\u{17F}])(?:(?=(?<g1>x+))\k<g1>)"
