"""Ids that the page's tokenizers give, in headless Chromium, and those of ours and of the libraries."""

import itertools
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Error
from support.corpora import Texts
from support.faults import scaled
from support.kept import PIPELINES, save
from support.scripts import RunScript
from support.tokenizers import ALL_TOKENIZERS, characters, content_of, texts

from gpt_cli.config import TokenizerConfig
from gpt_cli.errors import CheckpointError, EnvironmentFailure
from gpt_cli.text.split_patterns import CL100K_PATTERN, O200K_PATTERN, PATTERNS, WORD_PATTERN
from gpt_cli.text.tokenizers import BytePairTokenizer, CharTokenizer, Tokenizer
from gpt_cli.text.train_tokenizer import make_tokenizer
from gpt_cli.tools.exchange.page_data import javascript_pattern, tokenizer_content
from gpt_cli.tools.exchange.tokenizer_json import read_tokenizer

SCRIPTS = [f"model/engine/{name}.js" for name in ("refusal", "tokenizer", "byte_pairs", "imported")]
ENCODE = """({ content, texts }) => {
  const tokenizer = openTokenizer(content);
  return texts.map((text) => tokenizer.encode(text));
}"""
BOTH_WAYS = """({ content, texts }) => {
  const tokenizer = openTokenizer(content);
  const read = texts.map((text) => tokenizer.encode(text));
  const { vocabSize, endOfText } = tokenizer;
  const names = Array.from({ length: vocabSize }, (_, id) => tokenizer.tokenText(id));
  return { ids: read, decoded: read.map((ids) => tokenizer.textSoFar(ids)), names, empty: tokenizer.begin([]), vocabSize, endOfText };
}"""
BYTES = [bytes([byte]) for byte in range(256)]
# of each class of the patterns two: letters of both cases, digits, marks, quotes, white space, line ends
LETTERS = "sLt١7/'\n\r \u00a0é"
# every text of up to three of these letters is a token, so that ids show where a text was cut
TOKENS = BYTES + [
    text
    for length in (1, 2, 3)
    for letters in itertools.product(LETTERS, repeat=length)
    if len(text := "".join(letters).encode()) > 1
]


def encoded(run_script: RunScript, content: dict[str, str], texts: list[str]) -> list[list[int]]:
    return run_script(SCRIPTS, ENCODE, {"content": content, "texts": texts})


def require_same(run_script: RunScript, content: dict[str, str], ours: Tokenizer, texts: list[str]) -> None:
    """Let the page's tokenizer have our ids, our texts, and our names for all tokens."""
    found = run_script(SCRIPTS, BOTH_WAYS, {"content": content, "texts": texts})
    assert found["ids"] == [ours.encode(text) for text in texts]
    assert found["decoded"] == [ours.decode(ids, begins=False) for ids in found["ids"]]
    assert found["names"] == [ours.token_text(number) for number in range(ours.vocab_size)]
    assert [found["vocabSize"], found["endOfText"]] == [ours.vocab_size, ours.end_of_text]
    assert found["empty"] == ours.begin([])


# a test below has every pattern in short texts
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in ("bpe", "gpt2", "byte", "char") else pytest.mark.long)
        for kind in ALL_TOKENIZERS
    ],
)
def test_ids_are_those_of_ours(run_script: RunScript, kind: str, tally: Callable[[str, int], None]) -> None:
    ours, asked = ALL_TOKENIZERS[kind], texts(scaled(3000))
    asked += [] if kind == "char" else characters(scaled(3000))
    require_same(run_script, content_of(kind), ours, asked)
    tally("texts have the same ids on the page", len(asked))


def test_ids_of_a_published_vocabulary_are_those_of_ours(run_script: RunScript) -> None:
    try:
        ours = make_tokenizer(TokenizerConfig(kind="tiktoken", name="gpt2"), Texts([]), Texts([]))
    except EnvironmentFailure:
        pytest.skip("gpt2 is not in the cache that TIKTOKEN_CACHE_DIR names, and there is no network")
    content, asked = tokenizer_content(ours), texts(scaled(3000)) + characters(scaled(3000))
    assert len(json.dumps(content)) < 550_000
    assert encoded(run_script, content, asked) == [ours.encode(text) for text in asked]


@pytest.mark.parametrize("kind", ["bpe", pytest.param("cl100k", marks=pytest.mark.long)])
def test_long_runs_and_texts_of_several_pieces_have_the_same_ids(run_script: RunScript, kind: str) -> None:
    lines = "".join(f"{number} 行{'x' * (number % 90)}\n" for number in range(900))
    asked = [character * 33_000 for character in ("a", " ", "\n", "今", "1", "\u0301", "🙂")]
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
def test_unknown_characters_are_named_once_with_their_first_place(run_script: RunScript, text: str, told: str) -> None:
    with pytest.raises(Error, match=f"unknownCharacters.*{re.escape(told)}"):
        encoded(run_script, tokenizer_content(CharTokenizer("abc")), [text])


@pytest.mark.parametrize("kind", ["byte", "bpe", "char"])
def test_half_a_character_is_an_error_and_not_replaced(run_script: RunScript, kind: str) -> None:
    with pytest.raises(Error, match=re.escape('halfCharacter [["U+DCE9",2]]')):
        run_script(SCRIPTS, '(content) => openTokenizer(content).encode("🙂a\\udce9")', content_of(kind))


@pytest.mark.parametrize(
    "pattern",
    # whose classes no other pattern has, so that they take a second
    [pytest.param(each, marks=pytest.mark.long if each == O200K_PATTERN else ()) for each in PATTERNS],
)
def test_a_text_is_cut_at_the_same_places(run_script: RunScript, pattern: str) -> None:
    draws = random.Random(8)
    asked = ["".join(draws.choices(LETTERS, k=draws.randint(0, 16))) for _ in range(scaled(1000, least=300))]
    ours = BytePairTokenizer("bpe", pattern, TOKENS)
    found = encoded(run_script, tokenizer_content(ours), asked)
    assert [text for text, ids in zip(asked, found, strict=True) if ids != ours.encode(text)] == []


def test_classes_are_those_of_the_library_and_not_of_the_browser() -> None:
    """White space of Unicode has U+0085, which that of JavaScript lacks; the long s is an s without regard to case."""
    assert javascript_pattern(WORD_PATTERN).endswith(
        r"|[\u{9}-\u{D}\u{20}\u{85}\u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}-\u{2029}\u{202F}\u{205F}\u{3000}]+"
    )
    assert javascript_pattern(CL100K_PATTERN).startswith(r"'(?:[DMS-Tdms-t\u{17F}]|[Ll][Ll]|[Vv][Ee]|[Rr][Ee])|")


@pytest.mark.parametrize("name", [name for name in PIPELINES if name not in ("gpt2", "simplestories")])
def test_a_page_gives_the_ids_and_the_text_of_the_library(run_script: RunScript, name: str, tmp_path: Path) -> None:
    ours = read_tokenizer(save(name, tmp_path), None, None)
    asked = [*texts(scaled(1000)), *characters(scaled(300)), "<|im_start|> a <think>b</s> <s>x" * 3, "a b " * 9000]
    require_same(run_script, tokenizer_content(ours), ours, asked)


def test_a_page_refuses_words_by_name(tmp_path: Path) -> None:
    ours = read_tokenizer(save("simplestories", tmp_path), None, None)
    with pytest.raises(CheckpointError, match="the page of a model does not support tokenizers with WordPiece"):
        tokenizer_content(ours)


def test_a_page_refuses_a_vocabulary_that_lacks_a_byte(tmp_path: Path) -> None:
    """Python names a byte without a token; the page would leave it out without a word."""
    folder = save("gpt2", tmp_path)
    content = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["unheard"] = vocabulary.pop("~")
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="does not support tokenizers with BPE without some bytes"):
        tokenizer_content(read_tokenizer(folder, None, None))
