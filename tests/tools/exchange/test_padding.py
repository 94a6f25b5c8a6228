"""Batches of others on our exports: what fills them, and that a model which is trained further still learns to end."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exchange import sharp_checkpoint
from support.kept import save
from support.tokenizers import TOKENIZERS

from gpt_cli.tools.exchange.export_hf import write_for_transformers
from gpt_cli.tools.exchange.tokenizer_json import json_bytes, padding_id, read_tokenizer, tokenizer_json

_ROPE = "model.positions=rope"


def _loaded(transformers: Any, folder: Path) -> tuple[Any, Any]:
    auto = transformers.AutoModelForCausalLM, transformers.AutoTokenizer
    model, tokenizer = (one.from_pretrained(folder) for one in auto)
    return model.eval(), tokenizer


@pytest.mark.parametrize(("kind", "positions"), [("bpe", "learned"), ("byte", "rope"), ("gpt2", "rope")])
def test_the_usual_collator_learns_the_end(kind: str, positions: str, transformers: Any, tmp_path: Path) -> None:
    """Two texts of different lengths: each has its end among the labels, and the filling is in neither labels nor ids."""
    stored = sharp_checkpoint(f"model.positions={positions}", tokenizer=TOKENIZERS[kind])
    write_for_transformers(tmp_path / "hf", stored)
    model, tokenizer = _loaded(transformers, tmp_path / "hf")
    assert (tokenizer.pad_token, tokenizer.padding_side) == ("<|pad|>", "left" if positions == "rope" else "right")
    assert tokenizer.pad_token_id == model.config.pad_token_id == model.generation_config.pad_token_id
    texts = [[*stored.tokenizer.encode(text), stored.tokenizer.end_of_text] for text in ("The value ÿ", "It")]
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    batch = collator([{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in texts])
    assert [row[row != -100].tolist() for row in batch["labels"]] == texts
    with torch.no_grad():
        alone = stored.build_model().eval()(torch.tensor([texts[1]]))[0]
        padded = model(**{key: batch[key] for key in ("input_ids", "attention_mask")}).logits[1]
    seen = padded[-len(alone) :] if positions == "rope" else padded[: len(alone)]
    torch.testing.assert_close(seen, alone, rtol=0, atol=3e-5)


def test_without_a_spare_character_the_card_names_the_other_collator(transformers: Any, tmp_path: Path) -> None:
    stored = sharp_checkpoint(tokenizer=TOKENIZERS["char"])
    write_for_transformers(tmp_path / "hf", stored)
    _, tokenizer = _loaded(transformers, tmp_path / "hf")
    end = tokenizer.eos_token_id
    assert tokenizer.pad_token_id == end
    assert "DataCollatorForSeq2Seq(tokenizer)" in (tmp_path / "hf" / "README.md").read_text()
    texts = [[*tokenizer("The value")["input_ids"], end], [*tokenizer("a")["input_ids"], end]]
    features = [{"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ids} for ids in texts]
    batch = transformers.DataCollatorForSeq2Seq(tokenizer)(features)
    assert [row[row != -100].tolist() for row in batch["labels"]] == texts


@pytest.mark.parametrize(("kind", "learned"), [("bpe", "answers"), ("byte", "text"), ("char", "answers")])
def test_texts_have_our_ids_and_what_is_saved_again_or_was_written_earlier_is_ours(
    kind: str, learned: str, transformers: Any, tmp_path: Path
) -> None:
    """The letter that stands for the spare byte is a letter: also in a model whose marks are found in a text."""
    ours = TOKENIZERS[kind]
    stored = sharp_checkpoint(*(["data.loss=answers"] if learned == "answers" else []), tokenizer=ours)
    write_for_transformers(tmp_path / "hf", stored)
    _, tokenizer = _loaded(transformers, tmp_path / "hf")
    text = "ab 12" if kind == "char" else "L'Haÿ, ÿ"
    assert tokenizer(text)["input_ids"] == ours.encode(text)
    assert len(tokenizer) == ours.vocab_size
    tokenizer.save_pretrained(tmp_path / "again")
    own = {"kind": ours.kind, **({"pattern": ours.pattern} if kind == "bpe" else {})}  # type: ignore[attr-defined]
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "tokenizer.json").write_bytes(json_bytes(tokenizer_json(ours, padded=False)))
    if kind == "byte":
        assert tokenizer("<|pad|>", split_special_tokens=True)["input_ids"] == ours.encode("<|pad|>")
        content = json.loads((tmp_path / "hf" / "tokenizer.json").read_text())
        (tmp_path / "old").mkdir()
        content["model"]["ignore_merges"] = True
        (tmp_path / "old" / "tokenizer.json").write_bytes(json_bytes(content))
    for folder in ("hf", "again", "earlier", *(["old"] if kind == "byte" else [])):
        assert read_tokenizer(tmp_path / folder, None, own).digest == ours.digest
    if kind != "char":  # which nobody else has
        assert read_tokenizer(tmp_path / "hf", None, None).encode(text) == ours.encode(text)


def test_an_imported_tokenizer_pads_as_it_did(tmp_path: Path) -> None:
    qwen, gpt2 = (read_tokenizer(save(name, tmp_path / name), None, None) for name in ("qwen", "gpt2"))
    assert padding_id(qwen) == qwen.encode("<|endoftext|>")[0] != qwen.end_of_text
    assert padding_id(gpt2) == gpt2.end_of_text, "which names none"


@pytest.mark.filterwarnings("default")  # those of a library that is not ours
@pytest.mark.parametrize("settings", [(), (_ROPE, "model.norm=rmsnorm", "model.activation=relu2", "model.bias=false")])
def test_peft_takes_all_matrices_as_the_card_says(settings: tuple[str, ...], transformers: Any, tmp_path: Path) -> None:
    """GPT-2, and Arcee, of which peft knows no matrices."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    write_for_transformers(tmp_path / "hf", sharp_checkpoint("model.num_blocks=1", *settings))
    card = (tmp_path / "hf" / "README.md").read_text()
    code = card.partition("takes all matrices with\n`")[2].partition("`")[0]
    model, _ = _loaded(transformers, tmp_path / "hf")
    adapted = peft.get_peft_model(model, eval(code, {"LoraConfig": peft.LoraConfig}))
    changed = {name.split(".lora_")[0] for name, one in adapted.named_parameters() if one.requires_grad}
    assert len(changed) == (6 if settings else 4), "matrices of a block"
