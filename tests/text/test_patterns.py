from __future__ import annotations

import pytest
import tiktoken_ext.openai_public as published

from gpt_cli.text.patterns import PATTERNS, as_oniguruma, known_pattern
from gpt_cli.text.tokenizer import BytePairTokenizer

BYTES = [bytes([byte]) for byte in range(256)]
# every kind of character, alone and in runs: a pattern that skips one of them would lose it
EVERYTHING = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000), 0x10FFFF]))
RUNS = "aA1!  \t\n\r\n 你好，世界 ١٢٣ 1234567 don't 'LL 🎉👩‍💻 e\u0301\u2028\ue000  "


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_character_is_lost(pattern: str) -> None:
    tokenizer = BytePairTokenizer("bpe", pattern, BYTES)
    for text in (EVERYTHING, RUNS):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_patterns_of_the_installed_tiktoken_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"):
        monkeypatch.setattr(published, name, lambda *_, **__: {})
    for construct in published.ENCODING_CONSTRUCTORS.values():
        assert construct()["pat_str"] in PATTERNS


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_exported_pattern_comes_back(pattern: str) -> None:
    assert known_pattern(as_oniguruma(pattern)) == pattern


@pytest.mark.parametrize("written", ["", "a", r"(a)\1", r"(?=a)", "(("])
def test_no_other_pattern_is_known(written: str) -> None:
    assert known_pattern(written) is None
