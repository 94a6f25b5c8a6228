"""Ids as text on the page, in headless Chromium: streams and labels."""

import random
import unicodedata
from itertools import accumulate

import pytest
from support.faults import scaled
from support.scripts import RunScript
from support.tokenizers import HOSTILE, TOKENIZERS, content_of

from gpt_cli.common.drawing.token_labels import label_of
from gpt_cli.sampling.streaming import TextStream

SCRIPTS = [f"model/engine/{name}.js" for name in ("tokenizer", "byte_pairs", "imported", "labels")]
KINDS = ("bpe", "byte", "char")
STREAM = """({ content, texts }) => {
  const tokenizer = openTokenizer(content);
  return texts.map((ids) => ids.map((_, place) => tokenizer.textSoFar(ids.slice(0, place + 1))));
}"""


def streamed(run_script: RunScript, kind: str, texts: list[list[int]]) -> list[list[str]]:
    return run_script(SCRIPTS, STREAM, {"content": content_of(kind), "texts": texts})


@pytest.mark.parametrize("kind", KINDS)
def test_text_comes_as_soon_as_its_characters_are_complete(run_script: RunScript, kind: str) -> None:
    """Each text is cut somewhere, which may be in the middle of a character."""
    ours, draws = TOKENIZERS[kind], random.Random(1)
    texts = [ours.encode(text)[: draws.randint(1, 40)] for text in HOSTILE]
    for ids, found in zip(texts, streamed(run_script, kind, texts), strict=True):
        stream = TextStream(ours)
        assert found == list(accumulate(stream.feed(token) for token in ids))


@pytest.mark.parametrize("kind", KINDS)
def test_random_ids_whose_bytes_are_no_characters_are_the_same_text(run_script: RunScript, kind: str) -> None:
    ours, draws = TOKENIZERS[kind], random.Random(2)
    texts = [[draws.randrange(ours.vocab_size) for _ in range(40)] for _ in range(scaled(3000))]
    for ids, found in zip(texts, streamed(run_script, kind, texts), strict=True):
        stream = TextStream(ours)
        for place, expected in enumerate(accumulate(stream.feed(token) for token in ids)):
            first, second = ours.decode_bytes(ids[: place + 1])[-2:].rjust(2)
            # Python waits for a third byte of what can only be half a surrogate pair, a browser does not
            is_half = first == 0xED and 0xA0 <= second <= 0xBF
            assert found[place] == expected + "\ufffd\ufffd" * is_half
        assert ours.decode(ids).startswith(found[-1])


def test_labels_are_those_of_the_attention_page(run_script: RunScript) -> None:
    known = [chr(point) for point in range(0x3100) if unicodedata.category(chr(point)) != "Cn"]  # in Python's Unicode
    tokens = [*HOSTILE, *known, "\x1c\x85", "\ufeff", "中文" * 6, "👩‍💻" * 4, "1234567890ab", "1234567890abc"]
    found = run_script(SCRIPTS, "(tokens) => tokens.map(labelsOf)", tokens)
    differing = [
        token
        for token, labels in zip(tokens, found, strict=True)
        if labels != {"text": label_of(token, None), "short": label_of(token)}
    ]
    assert differing == []
