"""Tokenizers of others on the page, in headless Chromium: the ids and the text that the library tokenizers gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.faults import scaled
from support.kept import PIPELINES, save
from support.scripts import RunScript
from support.tokenizers import characters, texts

from gpt_cli.errors import CheckpointError
from gpt_cli.tools.exchange.page_data import tokenizer_content
from gpt_cli.tools.exchange.tokenizer_json import read_tokenizer

SCRIPTS = [f"model/engine/{name}.js" for name in ("refusal", "tokenizer", "byte_pairs", "kept", "streaming")]
BOTH_WAYS = """({ content, texts }) => {
  const tokenizer = openTokenizer(content);
  const read = texts.map((text) => tokenizer.encode(text));
  const { vocabSize, endOfText } = tokenizer;
  const names = Array.from({ length: vocabSize }, (_, id) => tokenizer.tokenText(id));
  return { ids: read, decoded: read.map((ids) => tokenizer.decode(ids)), names, empty: tokenizer.begin([]), vocabSize, endOfText };
}"""


@pytest.mark.parametrize("name", [name for name in PIPELINES if name != "simplestories"])
def test_a_page_gives_the_ids_and_the_text_of_the_library(run_script: RunScript, name: str, tmp_path: Path) -> None:
    ours = read_tokenizer(save(name, tmp_path), None, None)
    asked = [*texts(scaled(1000)), *characters(scaled(300)), "<|im_start|> a <think>b</s> <s>x" * 3, "a b " * 12_000]
    found = run_script(SCRIPTS, BOTH_WAYS, {"content": tokenizer_content(ours), "texts": asked})
    assert found["ids"] == [ours.encode(text) for text in asked]
    assert found["decoded"] == [ours.decode(ids) for ids in found["ids"]]
    assert found["names"] == [ours.token_text(number) for number in range(ours.vocab_size)]
    assert [found["vocabSize"], found["endOfText"]] == [ours.vocab_size, ours.end_of_text]
    assert found["empty"] == ours.begin([])


def test_a_page_refuses_words_by_name(tmp_path: Path) -> None:
    ours = read_tokenizer(save("simplestories", tmp_path), None, None)
    with pytest.raises(CheckpointError, match="the page of a model has no tokenizers with WordPiece"):
        tokenizer_content(ours)
