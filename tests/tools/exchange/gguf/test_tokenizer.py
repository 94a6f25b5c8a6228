"""Tokenizers in GGUF: the ids of the real llama.cpp, the way back, and refusals before harm."""

import json
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.faults import scaled
from support.kept import save
from support.llama_cpp import Served, needs_llama_cpp, serving, write_random
from support.tokenizers import HOSTILE, LEARNED, PARTS, characters, learned, texts

from gpt_cli.errors import CheckpointError, UsageError
from gpt_cli.text.hf_tokenizer import HuggingFaceTokenizer
from gpt_cli.text.split_patterns import CL100K_PATTERN, GPT2_PATTERN, OLD_CL100K_PATTERN, QWEN2_PATTERN, R50K_PATTERN
from gpt_cli.text.tokenizers import END_OF_TEXT, BytePairTokenizer, ByteTokenizer, CharTokenizer, Tokenizer
from gpt_cli.tools.exchange.gguf.tokenizer import metadata_of, tokenizer_from
from gpt_cli.tools.exchange.tokenizer_json import read_tokenizer

# words with marks before and after, long numbers, runs of spaces and lines: what patterns cut apart
_CORPUS = [*HOSTILE, *texts(500), "for i in range(1234):\n\n    x.append(i % 10_000)  # it's 5.25, don't\r\n" * 30]
PATTERNS = {"gpt2": GPT2_PATTERN, "llama3": OLD_CL100K_PATTERN, "qwen2": QWEN2_PATTERN}
_OURS: dict[str, Tokenizer] = {
    "char": CharTokenizer(sorted(set("".join([*_CORPUS, *PARTS])))),
    "byte": ByteTokenizer(),
    **{name: learned(_CORPUS, 400, pattern) for name, pattern in PATTERNS.items()},
}
OTHERS = ("gpt2", "llama3", "qwen", "smollm", "pythia")


def own(tokenizer: Tokenizer) -> dict[str, Any]:
    """What our key in the metadata says about a tokenizer."""
    return {key: value for key, value in tokenizer.to_dict().items() if key in ("kind", "pattern")}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """Ours, and those of others, whose names end in `-kept`."""
    folder = tmp_path_factory.mktemp("kept")
    return _OURS | {f"{name}-kept": read_tokenizer(save(name, folder / name), None, None) for name in OTHERS}


NAMES = [*_OURS, *(f"{name}-kept" for name in OTHERS)]


@pytest.fixture(scope="module")
def served(tokenizers: dict[str, Tokenizer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    folder, paths = tmp_path_factory.mktemp("gguf"), list[Path]()
    for name, tokenizer in tokenizers.items():
        paths.append(write_random(folder / f"{name}.gguf", metadata_of(tokenizer)[0], tokenizer.vocab_size))
    with serving(*paths) as found:
        yield dict(zip(tokenizers, found, strict=True))


def asked(name: str) -> list[str]:
    """Hostile texts, mixtures, code, and random characters of all planes for who knows them.

    Those that Unicode has had for some years: llama.cpp's tables of letters are older than tiktoken's.
    """
    found = [*texts(scaled(2000, 80)), *_CORPUS[-1:]]
    drawn = ["".join(c for c in text if unicodedata.category(c) != "Cn") for text in characters(scaled(1000, 20))]
    return found if name == "char" else found + drawn


@needs_llama_cpp
@pytest.mark.parametrize("name", NAMES)
def test_llama_cpp_gives_every_text_the_ids_of_ours(
    name: str, tokenizers: dict[str, Tokenizer], served: dict[str, Served], tally: Callable[[str, int], None]
) -> None:
    ours, theirs = tokenizers[name], served[name]
    wanted = asked(name)
    if name in ("qwen-kept", "pythia-kept"):  # they compose characters first, as a notice says
        without = plain(ours)
        wanted = [text for text in wanted if ours.encode(text) == without.encode(text)]
        assert len(wanted) > 60
    special = name.endswith("-kept")  # as for transformers
    for text in wanted:
        assert theirs.ids(text, parse_special=special) == [*ours.starts_with, *ours.encode(text)], ascii(text)
    tally("texts that llama.cpp cut as gpt does", len(wanted))


def plain(tokenizer: Tokenizer) -> Tokenizer:
    """An imported tokenizer without what it does to a text before it cuts it."""
    assert isinstance(tokenizer, HuggingFaceTokenizer)
    content = {**tokenizer.content, "normalizer": None}
    return HuggingFaceTokenizer(json.dumps(content), tokenizer.settings, tokenizer.end_of_text, tokenizer.vocab_size)


@needs_llama_cpp
@pytest.mark.parametrize("name", _OURS)
def test_a_prompt_begins_as_for_gpt_sample(name: str, served: dict[str, Served]) -> None:
    """Without end-of-text, whose name in a prompt is the token for llama.cpp, and plain text for gpt."""
    ours, prompt = _OURS[name], "The value"
    answer = served[name].asked("/completion", {"prompt": prompt, "n_predict": 1, "temperature": 0})
    assert answer["tokens_evaluated"] == len(ours.encode(prompt))
    assert served[name].ids(prompt + END_OF_TEXT, parse_special=True) == [*ours.encode(prompt), ours.end_of_text]


@needs_llama_cpp
def test_llama_cpp_leaves_out_an_unknown_character(served: dict[str, Served]) -> None:
    """Of its three bytes the first is that of known ones, on which llama.cpp's lists of bytes would never end."""
    ours, text = _OURS["char"], "今仉天"
    assert "仉" not in _OURS["char"].to_dict()["characters"]
    assert served["char"].ids(text) == ours.encode("今天")


def test_a_character_grows_from_its_bytes() -> None:
    """é is two bytes, 今 three; the last token is end-of-text."""
    keys, notices = metadata_of(CharTokenizer("aé今"))
    assert keys["tokenizer.ggml.tokens"] == ["a", "Ã©", "ä»Ĭ", END_OF_TEXT]
    assert keys["tokenizer.ggml.merges"] == ["Ã ©", "ä »", "ä» Ĭ"]
    assert keys["tokenizer.ggml.token_type"] == [1, 1, 1, 3]
    assert keys["tokenizer.ggml.eos_token_id"] == keys["tokenizer.ggml.bos_token_id"] == 3
    assert keys["tokenizer.ggml.add_bos_token"] is False
    assert "this tokenizer lacks" in notices[0]


def test_the_name_of_the_cut_and_what_is_cut_otherwise() -> None:
    def of(pattern: str) -> tuple[str, int]:
        keys, notices = metadata_of(BytePairTokenizer("bpe", pattern, LEARNED.token_bytes[:300]))
        return keys["tokenizer.ggml.pre"], len(notices)

    assert [of(pattern) for pattern in PATTERNS.values()] == [("gpt-2", 0), ("llama-bpe", 0), ("qwen2", 0)]
    assert [of(R50K_PATTERN), of(CL100K_PATTERN)] == [("gpt-2", 0), ("llama-bpe", 0)]
    keys, notices = metadata_of(LEARNED)
    assert keys["tokenizer.ggml.pre"] == "gpt-2"
    assert "‹tokenizer.pattern=gpt2›" in notices[0]


@pytest.mark.parametrize("name", [*_OURS, "simple"])
def test_ours_come_back(name: str) -> None:
    ours = _OURS.get(name, LEARNED)
    again = tokenizer_from(metadata_of(ours)[0], "model.gguf", own(ours))
    assert again.to_dict() == ours.to_dict()


@pytest.mark.parametrize("name", OTHERS)
def test_those_of_others_come_back_kept(name: str, tokenizers: dict[str, Tokenizer]) -> None:
    ours = tokenizers[f"{name}-kept"]
    keys, without = metadata_of(ours)[0], plain(ours)
    again = tokenizer_from(keys, "model.gguf", {})
    assert isinstance(again, HuggingFaceTokenizer)
    for name in ("vocab_size", "end_of_text", "starts_with"):
        assert getattr(again, name) == getattr(ours, name)
    for text in [*texts(scaled(500)), "<tool_call> <|im_start|>a<|endoftext|>"]:
        assert again.encode(text) == without.encode(text), ascii(text)
    assert metadata_of(again)[0] == keys


def test_ours_without_our_key_are_imported_and_encode_alike() -> None:
    for name in PATTERNS:
        again = tokenizer_from(metadata_of(_OURS[name])[0], "model.gguf", {})
        assert again.kind == "imported"
        for text in texts(30):
            if END_OF_TEXT not in text:  # a special token there
                assert again.encode(text) == _OURS[name].encode(text)


def test_a_key_that_is_not_true_makes_nothing_of_ours() -> None:
    gpt2 = metadata_of(_OURS["gpt2"])[0]
    for false in ({"kind": "bpe", "pattern": QWEN2_PATTERN}, {"kind": "byte"}, {"kind": "char"}, {"kind": ["bpe"]}):
        assert tokenizer_from(gpt2, "model.gguf", false).kind == "imported"
    assert tokenizer_from(gpt2, "model.gguf", {"kind": "bpe", "pattern": {}}).kind == "imported"


_SMALL: dict[str, Any] = {"model": "gpt2", "pre": "gpt-2", "bos_token_id": 3, "eos_token_id": 3}
_SMALL |= {"tokens": ["a", "b", "ab", END_OF_TEXT], "token_type": [1, 1, 1, 3], "merges": ["a b"]}


def small(**changes: Any) -> Tokenizer:
    keys = {key: value for key, value in (_SMALL | changes).items() if value is not None}
    return tokenizer_from({f"tokenizer.ggml.{key}": value for key, value in keys.items()}, "model.gguf", {})


def test_another_name_and_missing_types_will_do() -> None:
    assert small().encode("abba") == [2, 1, 0]
    assert small(pre="olmo", token_type=None, bos_token_id=None).encode("abba") == [2, 1, 0]
    llama = small(pre="llama3")
    assert llama.begin(llama.encode("ab")) == [3, 2]
    assert small(pre="llama3", add_bos_token=False).begin([2]) == [2]


HOSTILE_VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "model-sentencepiece": ({"model": "llama"}, "of kind SentencePiece"),
    "model-unknown": ({"model": "x"}, 'of kind "x"'),
    "model-missing": ({"model": None}, "model is not a text"),
    "pre-missing": ({"pre": None}, "pre is not a text"),
    "pre-unknown": ({"pre": "gpt-4o"}, 'by "gpt-4o"'),
    "tokens-missing": ({"tokens": None}, "tokens is not a list"),
    "tokens-numbers": ({"tokens": [1, 2, 3, 4]}, "tokens is not a list"),
    "tokens-none": ({"tokens": []}, "tokens is not a list"),
    "tokens-doubled": ({"tokens": ["a", "b", "a", END_OF_TEXT]}, "twice"),
    "tokens-empty": ({"tokens": ["a", "", "ab", END_OF_TEXT]}, "an empty token"),
    "tokens-half": ({"tokens": ["a", "b", "ab", "\ud800"]}, "not UTF-8"),
    "tokens-long": ({"tokens": ["a", "b", "ab", "c" * 2000]}, "more than 1,024 characters"),
    "types-short": ({"token_type": [1, 1, 3]}, "not all of its tokens are normal"),
    "types-flags": ({"token_type": [True] * 4}, "not all of its tokens are normal"),
    "types-bytes": ({"token_type": [6] * 4}, "not all of its tokens are normal"),
    "merges-doubled": ({"merges": ["a b", "a b"]}, "twice"),
    "merges-unknown": ({"merges": ["a x"]}, "that it does not have"),
    "merges-result": ({"merges": ["b a"]}, "that it does not have"),
    "merges-one": ({"merges": ["ab"]}, "two tokens with a space"),
    "merges-space": ({"merges": [" a"]}, "two tokens with a space"),
    "eos-missing": ({"eos_token_id": None}, "no end-of-text"),
    "eos-large": ({"eos_token_id": 4}, "not one of its 4 tokens"),
    "eos-negative": ({"eos_token_id": -1}, "not one of its 4 tokens"),
    "eos-flag": ({"eos_token_id": True}, "not one of its 4 tokens"),
    "bos-missing": ({"bos_token_id": None, "add_bos_token": True}, "but does not name it"),
    "added-many": (
        {"tokens": [*(f"t{i}" for i in range(20_000)), "t1t2"], "token_type": [3] * 20_001, "merges": ["t1 t2"]},
        "added tokens",
    ),
}


@pytest.mark.parametrize("what", HOSTILE_VALUES)
def test_what_is_no_tokenizer_of_ours_is_refused(what: str) -> None:
    changes, sentence = HOSTILE_VALUES[what]
    with pytest.raises(CheckpointError, match=sentence) as caught:
        small(**changes)
    assert caught.value.where == "model.gguf"


@pytest.mark.parametrize(("name", "sentence"), [("llama2", "Prepend|SentencePiece"), ("simplestories", "WordPiece")])
def test_what_has_no_form_there_is_refused(name: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        metadata_of(read_tokenizer(save(name, tmp_path / name), None, None))
    assert caught.value.hint == "‹format=hf› exports it"
