"""The chat template in a file for llama.cpp, as the real llama.cpp renders it."""

from __future__ import annotations

import json
from pathlib import Path

from support.exchange import CHATML, sharp_checkpoint
from support.kept import save
from support.llama_cpp import needs_llama_cpp, serving
from support.tokenizers import LEARNED

from gpt_cli.text.chat_templates import template_for
from gpt_cli.text.conversations import Turn
from gpt_cli.text.split_patterns import GPT2_PATTERN
from gpt_cli.text.tokenizers import BytePairTokenizer
from gpt_cli.tools.exchange.gguf.export_gguf import write_gguf
from gpt_cli.tools.exchange.gguf.reader import read_gguf_header
from gpt_cli.tools.exchange.gguf.tokenizer import tokenizer_from
from gpt_cli.tools.exchange.tokenizer_json import read_tokenizer, tokenizer_files

TURNS = [Turn("system", "Add."), Turn("user", "What is 1+1?"), Turn("assistant", "It is 2."), Turn("user", "And 2+2?")]


def test_the_template_of_others_comes_back_and_goes_on(tmp_path: Path) -> None:
    """From a directory of transformers into a file, and from there into either again."""
    source = save("qwen", tmp_path)
    (source / "chat_template.jinja").write_text(CHATML)
    stored = sharp_checkpoint(
        "tokenizer.kind=kept", "model.positions=rope", tokenizer=read_tokenizer(source, None, None)
    )
    write_gguf(tmp_path / "m.gguf", stored, "m", None)
    keys = read_gguf_header(tmp_path / "m.gguf")[0]
    assert keys["tokenizer.chat_template"] == CHATML
    again = tokenizer_from(keys, "m.gguf", {})
    assert template_for(None, again) == template_for(None, stored.tokenizer)
    settings = json.loads(tokenizer_files(again, 16)[1])
    assert settings["chat_template"] == CHATML
    assert settings["model_max_length"] == 16


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
    assert "tokenizer.chat_template" not in read_gguf_header(tmp_path / "m.gguf")[0]
