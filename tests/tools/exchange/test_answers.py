"""What transformers and llama.cpp make of an exported model and its template is what gpt has trained with."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exchange import CHATML, sharp_checkpoint
from support.kept import save
from support.llama_cpp import needs_llama_cpp, serving
from support.tokenizers import LEARNED
from tokenizers import Tokenizer

from gpt_cli.evaluation.answers import answer_costs
from gpt_cli.text.chat_templates import template_for
from gpt_cli.text.conversations import Conversation, Turn
from gpt_cli.text.sft_examples import gather
from gpt_cli.text.split_patterns import GPT2_PATTERN
from gpt_cli.text.tokenizers import BytePairTokenizer
from gpt_cli.tools.exchange.export_hf import write_for_transformers
from gpt_cli.tools.exchange.gguf.export_gguf import write_gguf
from gpt_cli.tools.exchange.gguf.reader import read_gguf_header
from gpt_cli.tools.exchange.gguf.tokenizer import tokenizer_from
from gpt_cli.tools.exchange.tokenizer_json import read_tokenizer, tokenizer_files

SHORT = BytePairTokenizer("bpe", GPT2_PATTERN, LEARNED.token_bytes[:300])
TURNS = (
    Turn("system", "Add the numbers."),
    Turn("user", "What is 1+1?"),
    Turn("assistant", "It is 2."),
    Turn("user", "And <|im_end|> 2+2?"),
    Turn("assistant", "4"),
)


def test_the_loss_on_answers_is_that_of_masked_labels(transformers: Any, tmp_path: Path) -> None:
    stored = sharp_checkpoint()
    tokenizer, length = stored.tokenizer, stored.config.model.context_length
    conversations = [Conversation(TURNS[1:]), Conversation(TURNS[:3]), Conversation(TURNS[3:])]
    examples = gather(conversations, tokenizer, template_for(None, tokenizer), length)
    write_for_transformers(tmp_path / "hf", stored)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    theirs.loss_type = "ForCausalLM"  # which it takes from the name of a class, but not from GPT2LMHeadModel
    costs, _ = answer_costs(stored.build_model().eval(), examples, dtype="float32")
    for number, nats in enumerate(costs):
        start, end = examples.bounds[number : number + 2]
        ids = torch.from_numpy(examples.ids[start:end].astype(int))[None]
        labels = ids.masked_fill(~torch.from_numpy(examples.learned[start:end]), -100)
        with torch.no_grad():
            loss = theirs(ids, labels=labels).loss.item()
        assert nats / examples.num_learned[number] == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("setting", [None, "Q: {prompt}\nA:\n"])
@pytest.mark.parametrize("kind", ["bpe", "byte"])
def test_transformers_renders_our_ids(transformers: Any, tmp_path: Path, kind: str, setting: str | None) -> None:
    tokenizer = SHORT if kind == "bpe" else None
    template = setting or "{prompt}\n"
    stored = sharp_checkpoint("data.loss=answers", f"data.template={template}", tokenizer=tokenizer)
    write_for_transformers(tmp_path / "hf", stored)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    ours = template_for(template, stored.tokenizer)
    for turns in (TURNS, TURNS[1:2], TURNS[:2]):
        messages = [turn._asdict() for turn in turns]
        asks = turns[-1].role == "user"
        found = theirs.apply_chat_template(messages, add_generation_prompt=asks, return_dict=False)
        assert found == ours.encode(turns, stored.tokenizer).ids


def test_a_model_that_learned_no_answers_has_no_template(tmp_path: Path) -> None:
    write_for_transformers(tmp_path / "hf", sharp_checkpoint())
    assert "chat_template" not in json.loads((tmp_path / "hf/tokenizer_config.json").read_text())


LLAMA3 = (
    "{{ '<|begin_of_text|>' }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
    "'<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)


@pytest.mark.parametrize(("name", "written"), [("qwen", CHATML), ("llama3", LLAMA3)])
def test_templates_of_others_give_transformers_ids(name: str, written: str, transformers: Any, tmp_path: Path) -> None:
    """Theirs, and what we write for it where a tokenizer has none."""
    folder = save(name, tmp_path)
    if name == "llama3":
        tokens = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokens.add_special_tokens(["<|start_header_id|>", "<|end_header_id|>"])
        tokens.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(written)
    tokenizer = read_tokenizer(folder, None, None)
    ours, theirs = template_for(None, tokenizer), transformers.AutoTokenizer.from_pretrained(folder)
    assert ours.name == ("chatml" if name == "qwen" else "llama3")
    for template in (written, ours.jinja(tokenizer)):
        for turns in (TURNS, TURNS[1:2], TURNS[:2], TURNS[1:]):
            asks = turns[-1].role == "user"
            messages = [{"role": role, "content": f"{content} "} for role, content in turns]
            found = theirs.apply_chat_template(
                messages, chat_template=template, add_generation_prompt=asks, return_dict=False
            )
            mine = ours.encode([Turn(role, f"{content} ") for role, content in turns], tokenizer).ids
            assert found[: len(mine)] == mine
            # after the last answer only what begins the next turn is left
            assert tokenizer.decode(found[len(mine) :]) in ("", "\n")


def test_the_template_of_others_comes_back_and_goes_on(tmp_path: Path) -> None:
    """From a directory of transformers into a file, and from there into either again."""
    source = save("qwen", tmp_path)
    (source / "chat_template.jinja").write_text(CHATML)
    kept = read_tokenizer(source, None, None)
    stored = sharp_checkpoint("tokenizer.kind=imported", "model.positions=rope", tokenizer=kept)
    write_gguf(tmp_path / "m.gguf", stored, "m", None)
    keys = read_gguf_header(tmp_path / "m.gguf")[0]
    assert keys["tokenizer.chat_template"] == CHATML
    again = tokenizer_from(keys, "m.gguf", {})
    assert template_for(None, again) == template_for(None, stored.tokenizer)
    settings = json.loads(tokenizer_files(again, 16)[1])
    assert settings["chat_template"] == CHATML
    assert settings["model_max_length"] == 16


def test_an_export_stops_where_an_answer_ends_and_begins_with_the_default_system_message(tmp_path: Path) -> None:
    source = save("qwen", tmp_path)
    (source / "chat_template.jinja").write_text(CHATML)
    tokenizer = read_tokenizer(source, None, None)
    learned = ("tokenizer.kind=imported", "model.positions=rope", "data.loss=answers", "data.template=chatml")
    stored = sharp_checkpoint(*learned, tokenizer=tokenizer)
    write_for_transformers(tmp_path / "hf", stored)
    generation = json.loads((tmp_path / "hf/generation_config.json").read_text())
    assert generation["eos_token_id"] == [tokenizer.end_of_text, *tokenizer.array("<|im_end|>")]
    write_gguf(tmp_path / "m.gguf", stored, "m", None)
    begins = "<|im_start|>system\nYou add numbers.<|im_end|>\n<|im_start|>user\n{{ .Prompt }}<|im_end|>\n"
    assert f'\nTEMPLATE """{begins}' in (tmp_path / "Modelfile").read_text()


def test_a_plain_template_goes_out_in_place_of_one_that_gpt_does_not_support(transformers: Any, tmp_path: Path) -> None:
    """Its answers end in the token that gpt trained, whatever the tokenizer calls its end of text."""
    source = save("llama3", tmp_path)
    settings = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": f"{LLAMA3}{{# think #}}"}))
    end = Tokenizer.from_file(str(source / "tokenizer.json")).token_to_id("<|eot_id|>")
    tokenizer = read_tokenizer(source, end, None)
    assert tokenizer.token_text(tokenizer.end_of_text) != settings["eos_token"]
    learned = ("tokenizer.kind=imported", "model.positions=rope", "data.loss=answers")
    write_for_transformers(tmp_path / "hf", sharp_checkpoint(*learned, tokenizer=tokenizer))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    found = theirs.apply_chat_template([turn._asdict() for turn in TURNS], return_dict=False)
    assert found == template_for(None, tokenizer).encode(TURNS, tokenizer).ids


@needs_llama_cpp
def test_llama_cpp_renders_our_ids(tmp_path: Path) -> None:
    stored = sharp_checkpoint("data.loss=answers", tokenizer=SHORT)
    write_gguf(tmp_path / "m.gguf", stored, "m", None)
    turns = (*TURNS[:3], Turn("user", "And 2+2?"))
    with serving(tmp_path / "m.gguf") as (served,):
        messages = [turn._asdict() for turn in turns]
        prompt = served.asked("/apply-template", {"messages": messages})["prompt"]
        found = served.ids(prompt, parse_special=True)
    assert found == template_for(None, SHORT).encode(turns, SHORT).ids
    write_gguf(tmp_path / "m.gguf", sharp_checkpoint(tokenizer=SHORT), "m", None)
    assert "tokenizer.chat_template" not in read_gguf_header(tmp_path / "m.gguf")[0]
