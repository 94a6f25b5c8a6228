"""The chat template in a file for llama.cpp, as the real llama.cpp renders it."""

from __future__ import annotations

from pathlib import Path

from support.exchange import sharp_checkpoint
from support.llama_cpp import needs_llama_cpp, serving
from support.tokenizers import LEARNED

from gpt_cli.exchange.gguf.reading import read_header
from gpt_cli.exchange.gguf.writing import write_gguf
from gpt_cli.text.conversations import Turn
from gpt_cli.text.patterns import GPT2_PATTERN
from gpt_cli.text.templates import template_for
from gpt_cli.text.tokenizer import BytePairTokenizer

TURNS = [Turn("system", "Add."), Turn("user", "What is 1+1?"), Turn("assistant", "It is 2."), Turn("user", "And 2+2?")]


@needs_llama_cpp
def test_llama_cpp_renders_our_ids(tmp_path: Path) -> None:
    tokenizer = BytePairTokenizer("bpe", GPT2_PATTERN, LEARNED.token_bytes)
    stored = sharp_checkpoint("data.loss=answers", tokenizer=tokenizer)
    write_gguf(tmp_path / "m.gguf", stored, "m", None)
    with serving(tmp_path / "m.gguf") as (served,):
        messages = [turn._asdict() for turn in TURNS]
        prompt = served.asked("/apply-template", {"messages": messages})["prompt"]
        found = served.ids(prompt, parse_special=True)
    assert found == template_for(None, tokenizer).encode(TURNS, tokenizer).ids
    write_gguf(tmp_path / "m.gguf", sharp_checkpoint(tokenizer=tokenizer), "m", None)
    assert "tokenizer.chat_template" not in read_header(tmp_path / "m.gguf")[0]
