"""Choose the tokenizer for a text: single characters, or byte pairs and their number. Imports no torch."""

from collections.abc import Mapping
from typing import Any

from gpt_cli.config.schema import PUBLISHED
from gpt_cli.training.auto_config.model_sizes import REFERENCE_TOKENS
from gpt_cli.training.auto_config.text_statistics import TextFigures

# a text of at least so many bytes -> the vocabulary size of byte pairs
_VOCABULARIES = {0: 512, 150_000: 1024, 1_500_000: 2048, 6_000_000: 4096}
_SHORT, _SHORT_VOCABULARY = 600, 1_500_000  # below so many reference steps, the vocabulary of a text of that size
# bytes a character, and bits of its entropy, from which single characters are tokens, up to a text of so many bytes;
# letters of Hindi, Thai or Georgian have three bytes too, and 4.5 to 5.5 bits
_WIDE_SCRIPT, _WIDE_ENTROPY, _CHARACTERS_UP_TO = 2.5, 6.0, 1_000_000
# of other scripts, a text below so many bytes that there is time to read so often: it teaches few byte pairs
_LETTERS_BELOW, _TIMES = 150_000, 10
# up to so many letters, byte pairs must save this share of the entropy of characters: English 20 %, DNA none
_LETTERS, _PAYING_PAIRS = 256, 0.05


def choose_tokenizer(text: TextFigures, steps: float, fixed: Mapping[str, Any]) -> tuple[dict[str, Any], str, float]:
    """Choose the tokenizer for a text and a budget of `steps` (`Budget.reference_steps`); keep the settings in `fixed`.

    Returns the settings of the section `tokenizer`, the reason, and about how many bytes a token has.
    """
    wide = has_wide_characters(text, "char")
    often = steps * REFERENCE_TOKENS >= _TIMES * text.num_characters
    few_letters = text.num_distinct <= _LETTERS and text.pair_saving < _PAYING_PAIRS
    small = text.num_bytes < _CHARACTERS_UP_TO if wide else few_letters or (text.num_bytes < _LETTERS_BELOW and often)
    learns = "vocab_size" in fixed or "pattern" in fixed
    kind = fixed.get("kind") or ("tiktoken" if "name" in fixed else "char" if small and not learns else "bpe")
    if kind in ("char", "byte"):
        what = f"tokens are {'bytes' if kind == 'byte' else 'characters'}"
        return {**fixed, "kind": kind}, what, 1.0 if kind == "byte" else text.bytes_per_character
    if kind != "bpe":
        return {**fixed, "kind": kind}, "a published vocabulary", 4.0
    num_bytes = min(text.num_bytes, _SHORT_VOCABULARY) if steps < _SHORT else text.num_bytes
    vocabulary = fixed.get("vocab_size") or _VOCABULARIES[max(size for size in _VOCABULARIES if num_bytes >= size)]
    chosen = {**fixed, "kind": kind, "vocab_size": vocabulary}
    return chosen, f"byte pairs, vocabulary of {vocabulary:,}", text.bytes_per_token(vocabulary)


def has_wide_characters(text: TextFigures, kind: str) -> bool:
    """Return whether `kind` is char and the script is like Chinese, where a character is a large part of a word."""
    return kind == "char" and text.bytes_per_character >= _WIDE_SCRIPT and text.entropy >= _WIDE_ENTROPY


def estimate_vocab_size(tokenizer: Mapping[str, Any], num_distinct: int = 66) -> int:
    """Estimate the vocabulary size that tokenizer settings give for a text of `num_distinct` different characters."""
    sizes = {"char": num_distinct, "byte": 257, "bpe": tokenizer.get("vocab_size", 0)}
    return sizes.get(tokenizer["kind"]) or PUBLISHED.get(tokenizer.get("name", "gpt2"), PUBLISHED["gpt2"])
