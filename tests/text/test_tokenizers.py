import itertools
import json
import socket
import threading
import time
import tracemalloc

import pytest
import tiktoken_ext.openai_public as published
from hypothesis import given, settings
from hypothesis import strategies as st
from support.corpora import Texts
from support.tokenizers import learned

from gpt_cli.config import TokenizerConfig
from gpt_cli.errors import CheckpointError, DataError, EnvironmentFailure, UsageError
from gpt_cli.text import train_tokenizer as module
from gpt_cli.text.split_patterns import PATTERNS, WORD_PATTERN
from gpt_cli.text.tokenizers import BytePairTokenizer, ByteTokenizer, CharTokenizer, Tokenizer
from gpt_cli.text.train_tokenizer import make_tokenizer, published_tokenizer, tokenizer_from_dict, train_byte_pairs

MIXED = "The cat sat. 今天天气很好，我们去公园。 🙂👩‍👩‍👧 caffè\r\n\tend\u2028x\0<|endoftext|>  \n\n"
BPE = learned(["the cat and the hat and the bat. 今天天气很好，今天。\n" * 20], 300)


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), BPE, CharTokenizer(sorted(set(MIXED)))], ids=lambda t: t.kind)
def test_text_survives_and_end_of_text_never_comes_out_of_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(MIXED)
    assert tokenizer.decode(ids) == MIXED
    assert tokenizer.end_of_text == tokenizer.vocab_size - 1
    assert tokenizer.end_of_text not in ids
    assert tokenizer.encode("") == []


@given(st.text())
def test_any_text_survives_bytes_and_byte_pairs(text: str) -> None:
    for tokenizer in (ByteTokenizer(), BPE):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.binary())
@settings(max_examples=50)
def test_lone_bytes_survive_as_bytes(content: bytes) -> None:
    assert ByteTokenizer().decode_bytes(content) == content
    assert BPE.decode_bytes([BPE.token_bytes.index(bytes([byte])) for byte in content]) == content


def test_byte_pairs_are_shorter_than_bytes_and_learned_from_the_text_alone() -> None:
    assert len(BPE.encode("the cat and the hat")) < 10
    assert BPE.vocab_size <= 300
    assert train_byte_pairs(["hello hello hello"], 1024).vocab_size < 300
    assert train_byte_pairs([""], 1024).vocab_size == 257


def test_byte_pairs_equal_those_of_the_textbook_algorithm() -> None:
    """Sennrich et al. 2016: merge the most frequent neighbours, again and again."""
    text = "low lower lowest newer newest wider widest"
    assert train_byte_pairs([text], 257 + 12).token_bytes[256:] == slow_merges(text, 12)


def slow_merges(text: str, count: int) -> list[bytes]:
    import regex

    words = [[bytes([b]) for b in word.encode()] for word in regex.findall(module.WORD_PATTERN, text)]
    order = {bytes([byte]): byte for byte in range(256)}
    merged: list[bytes] = []
    for _ in range(count):
        pairs: dict[tuple[bytes, bytes], int] = {}
        for word in words:
            for pair in itertools.pairwise(word):
                pairs[pair] = pairs.get(pair, 0) + 1
        best = max(pairs, key=lambda pair: (pairs[pair], -order[pair[0]], -order[pair[1]]))
        merged.append(best[0] + best[1])
        order[merged[-1]] = len(order)
        for word in words:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = [merged[-1]]
                i += 1
    return merged


def test_pathological_text_is_encoded_in_reasonable_time() -> None:
    started = time.monotonic()
    for text in (" " * 300_000 + "x", "a" * 300_000, "\n" * 300_000, "今" * 100_000):
        assert BPE.decode(BPE.encode(text)) == text
        train_byte_pairs([text], 260)
    assert time.monotonic() - started < 60


def lacking(characters: str, text: str) -> DataError:
    """Return the error about the characters of a text that a vocabulary lacks."""
    with pytest.raises(DataError) as raised:
        CharTokenizer(characters).encode(text)
    return raised.value


def test_unknown_characters_are_named_with_their_position() -> None:
    assert lacking("abc", "ab\x1bé今").lines() == [
        "error: text: this model knows 3 characters, but not "
        '"\\x1b" U+001B at position 2, "é" U+00E9 at position 3, "今" U+4ECA at position 4',
        "hint: leave these characters out, or train with --set tokenizer.kind=bpe, which reads every character",
    ]


def test_unknown_characters_are_counted_by_kinds_and_by_places() -> None:
    error, hint = lacking("abc", "xyxx" + "a" * 300).lines()
    assert error.endswith(
        'but not "x" U+0078 at position 0, "y" U+0079 at position 1; of 304 characters read at once, it lacks 4, of 2 kinds'
    )
    assert hint.startswith("hint: leave these characters out")
    error, hint = lacking("abc", "tuvwxyz" * 2000 + "a" * 14_000).lines()
    assert error.count(" at position ") == 5
    assert error.endswith("; of 28,000 characters read at once, it lacks 14,000, of 7 kinds")
    assert hint.startswith("hint: it reads texts like its training text")


def test_an_unknown_character_of_windows_line_ends_is_explained() -> None:
    hint = "\\r belongs to Windows line ends; this command removes it: tr -d '\\r' < OLD > NEW"
    assert lacking("\nabc", "a\r\n" * 10).hint == hint
    assert "Windows" not in (lacking("\nabc", "a\r").hint or "")
    hint = lacking("\nabc", "春眠\r\n" * 10).hint or ""  # \r is the smaller trouble
    assert "reads texts like its training text" in hint


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), BPE, CharTokenizer("a")], ids=lambda t: t.kind)
def test_half_a_character_is_an_error_and_not_replaced(tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match="U\\+D8E9 at position 1 is half a character"):
        tokenizer.encode("a\ud8e9")
    with pytest.raises(DataError, match="byte 0xe9 at position 1 is not UTF-8") as raised:
        tokenizer.encode("a\udce9")  # as Python gives what a terminal in Latin-1 has sent
    assert raised.value.hint == "the input may be in another encoding, such as GBK; send UTF-8"


def test_tokens_are_shown_as_text_or_as_bytes() -> None:
    tokenizer = ByteTokenizer()
    assert [tokenizer.token_text(i) for i in (65, 0xE4, 0, 256)] == ["A", "<0xE4>", "<0x00>", "<|endoftext|>"]


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), BPE, CharTokenizer("今天\0a")], ids=lambda t: t.kind)
def test_a_stored_tokenizer_is_the_same(tokenizer: Tokenizer) -> None:
    again = tokenizer_from_dict(json.loads(json.dumps(tokenizer.to_dict())))
    assert again.digest == tokenizer.digest
    assert again.token_bytes == tokenizer.token_bytes
    assert again.encode("今天a") == tokenizer.encode("今天a")


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"kind": "x"},
        {"kind": "char"},
        BPE.to_dict() | {"pattern": ["x"]},
        BPE.to_dict() | {"tokens": ["YQ=="]},
        BPE.to_dict() | {"tokens": "!!"},
        BPE.to_dict() | {"tokens": BPE.to_dict()["tokens"] + " "},
        BPE.to_dict() | {"tokens": BPE.to_dict()["tokens"] + " YQ=="},
        BPE.to_dict() | {"tokens": BPE.to_dict()["tokens"].replace("YQ==", "YR==")},
        {"kind": "char", "characters": "aba"},
        {"kind": "char", "characters": ["a", "b"]},
        {"kind": "char", "characters": 7},
    ],
)
def test_what_is_no_tokenizer_is_refused(stored: dict[str, str]) -> None:
    with pytest.raises(CheckpointError):
        tokenizer_from_dict(stored)


@pytest.mark.parametrize(
    "pattern",
    [r"(a)\1", r"(?=a)", "", "((", r"(a*)*b", r"\p{L}+|", "a" * 2**20, WORD_PATTERN + "|x", WORD_PATTERN + " "],
    ids=["back-reference", "lookahead", "nothing", "syntax", "exponential", "empty-branch", "long", "more", "space"],
)
def test_a_pattern_of_strangers_is_refused_before_it_is_compiled(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiktoken.Encoding", None)
    with pytest.raises(CheckpointError, match=r"it splits texts by .*, which gpt does not support"):
        tokenizer_from_dict(BPE.to_dict() | {"pattern": pattern})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("simple", [" 202", "6", " don", "'", "t"]),
        ("gpt2", [" 2026", " don", "'t"]),
        ("llama3", [" ", "202", "6", " don", "'t"]),
        ("qwen2", [" ", "2", "0", "2", "6", " don", "'t"]),
    ],
)
def test_byte_pairs_are_learned_and_merged_within_the_words_of_a_pattern(name: str, words: list[str]) -> None:
    """A text that repeats itself becomes as few tokens as its pattern lets it."""
    config = TokenizerConfig.model_validate({"kind": "bpe", "pattern": name, "vocab_size": 300})
    text = " 2026 don't" * 20
    ours = make_tokenizer(config, Texts([text]), Texts([text]))
    assert [ours.token_text(one) for one in ours.encode(text)] == words * 20
    assert tokenizer_from_dict(ours.to_dict()).encode(text) == ours.encode(text)


def test_naming_unknown_characters_takes_no_memory_for_each() -> None:
    """A prompt of nine megabytes took one gigabyte, for the five that are named."""
    tracemalloc.start()
    with pytest.raises(DataError, match="of 1,000,000 characters read at once, it lacks 1,000,000, all of one kind"):
        CharTokenizer("ab").encode("x" * 1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6


def test_a_published_vocabulary_encodes_as_published() -> None:
    try:
        tokenizer = make_tokenizer(TokenizerConfig(kind="tiktoken", name="gpt2"), Texts([]), Texts([]))
    except EnvironmentFailure:
        pytest.skip("gpt2 is not in the cache that TIKTOKEN_CACHE_DIR names, and there is no network")
    assert tokenizer.encode("hello world") == [31373, 995]
    assert tokenizer.end_of_text == 50256
    assert tokenizer_from_dict(tokenizer.to_dict()).encode("今天 hello") == tokenizer.encode("今天 hello")


@pytest.mark.parametrize("network", ["refuses", "hangs"])
def test_a_published_vocabulary_without_network_is_one_error_in_time(
    network: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(module, "NETWORK_TIMEOUT", 0.5)
    released = threading.Event()

    def connect(*_: object, **__: object) -> None:
        if network == "hangs":
            released.wait(20)
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", connect)
    started = time.monotonic()
    with pytest.raises(EnvironmentFailure) as raised:
        make_tokenizer(TokenizerConfig(kind="tiktoken", name="gpt2"), Texts([]), Texts([]))
    released.set()
    assert time.monotonic() - started < 10
    cause = "no connection" if network == "refuses" else "not done in 0.5 s"
    sentence = f"the vocabulary gpt2 cannot be downloaded ({cause}); the folder TIKTOKEN_CACHE_DIR={tmp_path} lacks it"
    assert raised.value.sentence == sentence
    assert "tokenizer.kind=bpe" in (raised.value.hint or "")


def test_a_published_vocabulary_with_a_gap_between_its_ids_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As p50k_base, whose tokens above the gap would have other ids here."""
    ranks = {bytes([byte]): byte + (byte > 200) for byte in range(256)}
    vocabulary = {"pat_str": next(iter(PATTERNS)), "mergeable_ranks": ranks}
    monkeypatch.setitem(published.ENCODING_CONSTRUCTORS, "p50k_base", lambda: vocabulary)
    with pytest.raises(UsageError, match="p50k_base leaves out ids"):
        published_tokenizer("p50k_base")


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
