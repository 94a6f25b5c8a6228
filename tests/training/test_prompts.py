"""The prompts of a training: those of samples begin and end where a reader would cut a text."""

import numpy as np
import pytest
from support.helpers import small_config

from gpt_cli.errors import DataError
from gpt_cli.text.tokenizers import BytePairTokenizer, ByteTokenizer, CharTokenizer, Tokenizer
from gpt_cli.training.prompts import prompt_of_validation, sample_prompt, watched_ids

WORDS = BytePairTokenizer("bpe", r"", [*(bytes([b]) for b in range(256)), b"ter", b" thy", b" ken", b".\n", b"King"])


def prompt(text: str, tokenizer: Tokenizer, *settings: str) -> str:
    """The prompt where the validation text begins with this."""
    return tokenizer.decode(sample_prompt(small_config(*settings), tokenizer, ids(text, tokenizer)))


def ids(text: str, tokenizer: Tokenizer) -> np.ndarray:
    return tokenizer.array(text)


def characters(text: str) -> CharTokenizer:
    return CharTokenizer(sorted(set(text)))


@pytest.mark.parametrize(
    ("text", "found", "why"),
    [
        ("easured on two s\nShall I compare thee to a summer", "Shall I compare", "a line, and whole words of it"),
        ("ter thy ken.\n\nKING:\nWhat is the matter, my lord?", "KING:", "a whole line"),
        ("easured on two shoulders of a giant", "on two shoulders", "without a line, a word"),
        ("easured on\n", "easured on", "nothing better in so short a text"),
        ("学而时习之，不亦说乎？\n有朋自远方来，不亦乐乎？人不知而不愠，不亦君子乎？", "有朋自远方来，不亦乐乎？人不知而", "no words: 16 characters"),
        ("为政以德，譬如北辰，居其所而众星共之。诗三百，一言以蔽之，曰思无邪。", "为政以德，譬如北辰，居其所而众星", "nor lines"),
    ],
)  # fmt: skip
def test_a_prompt_begins_with_a_line_or_a_word(text: str, found: str, why: str) -> None:
    assert prompt(text, characters(text)) == found, why


@pytest.mark.parametrize(
    ("text", "found", "why"),
    [
        ("xE5><0x85>，在注意力图中", "在注意力", "codes in Chinese are no prompt"),
        ("xE5 is the first byte of a word", "The", "English has one that every model takes"),
        ("8=76\n38+98=136\n4+5=9\n" * 3, "38+", "a text without letters has no word"),
        ("größte Stadt der Welt", "größte", "the first word, with letters that English lacks"),
        ("ßte Stadt ist München, sagt man", "Stadt", "not the rest of a word"),
    ],
)
def test_the_prompt_to_try_a_model_with_is_of_the_kind_of_its_text(text: str, found: str, why: str) -> None:
    assert prompt_of_validation(ByteTokenizer(), ids(text, ByteTokenizer())) == found, why


def test_a_prompt_of_byte_pairs_begins_and_ends_with_words() -> None:
    tokens = [b"ter", b" thy", b" ken", b".\n", b"King", *[b" thy"] * 15, b"t", b"ter", b"ter", b"ter"]
    found = sample_prompt(
        small_config(), WORDS, np.array([WORDS.token_bytes.index(token) for token in tokens], np.uint32)
    )
    assert WORDS.decode(found) == "King" + " thy" * 14  # the last may be the beginning of a longer word
    only_words = np.array([WORDS.token_bytes.index(token) for token in [b"ter", *[b" ken"] * 40]], np.uint32)
    assert WORDS.decode(sample_prompt(small_config(), WORDS, only_words)) == " ken" * 16


def test_a_prompt_has_whole_characters() -> None:
    text = "今天天气真不错"
    array = np.concatenate([ids(text, ByteTokenizer())[2:], ids(text * 4, ByteTokenizer())])
    assert ByteTokenizer().decode(sample_prompt(small_config(), ByteTokenizer(), array)) == "天天气真不"


def test_documents_begin_lines() -> None:
    tokenizer = ByteTokenizer()
    array = np.array([*b"ted", tokenizer.end_of_text, *b"Once upon a time there was a king"], np.uint32)
    assert tokenizer.decode(sample_prompt(small_config(), tokenizer, array)) == "Once upon a time"


def test_a_config_may_name_the_prompt_of_samples() -> None:
    text = "Shall I compare thee"
    assert prompt(text, ByteTokenizer(), "train.sample_prompt=The king") == "The king"
    with pytest.raises(DataError, match=r"train\.sample_prompt: this model knows .* but not"):
        prompt(text, characters(text), "train.sample_prompt=Ü")
    assert prompt(text, ByteTokenizer(), f"train.sample_prompt={'abc' * 40}") == ("abc" * 40)[-16:], "as it can see"


def test_a_text_that_cannot_be_watched_is_refused() -> None:
    def refused(prompt: str, tokenizer: ByteTokenizer | CharTokenizer) -> str:
        with pytest.raises(DataError) as raised:
            watched_ids(small_config(f"inspect.prompt={prompt}"), tokenizer)
        return f"{raised.value} {raised.value.hint}"

    said = refused("x" * 17, ByteTokenizer())
    assert said.startswith("inspect.prompt (watch): it has 17 tokens, but this model sees 16 ")
    assert said.endswith(" ‹model.context_length=17›")
    assert refused("x", ByteTokenizer()).startswith("inspect.prompt (watch): it is a single token")
    assert refused("ab?", CharTokenizer(["a", "b"])).startswith("inspect.prompt (watch): ")
    assert watched_ids(small_config("inspect.prompt=ab"), ByteTokenizer()) == [97, 98]
    assert watched_ids(small_config(), ByteTokenizer()) == []
