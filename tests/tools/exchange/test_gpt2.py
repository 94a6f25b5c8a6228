"""Directories that the real transformers wrote, as models of ours; and our own exports on their way back."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.exchange import sharp_checkpoint
from support.families import save_tokenizer
from support.faults import some_of
from support.tokenizers import learned

from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.common.host import uncounted
from gpt_cli.config import ModelConfig
from gpt_cli.model import GPT
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import generate
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.text.tokenizers import ByteTokenizer, CharTokenizer
from gpt_cli.tools.exchange.export_hf import fit
from gpt_cli.tools.exchange.export_model import write_for_transformers
from gpt_cli.tools.exchange.import_hf import read_foreign
from gpt_cli.tools.exchange.import_model import write_run

TEXT = "the quick brown fox jumps over the lazy dog, and it's a fine day: 1234 5678 你好世界. "
V = 300


def gpt2(transformers: Any, **settings: Any) -> Any:
    """A GPT-2 of theirs, 48 wide with 3 blocks, with weights as large as trained ones."""
    sizes = {"n_positions": 80, "n_embd": 48, "n_layer": 3, "n_head": 4, "vocab_size": V}
    torch.manual_seed(0)
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, **settings)
    model = transformers.GPT2LMHeadModel._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.12 * torch.randn(parameter.shape))
    return model


def imported(directory: Path, out: Path) -> Checkpoint:
    """The run that `gpt import` writes."""
    write_run(RunDirectory(out), read_foreign(directory), uncounted)
    return read_checkpoint(out / "checkpoints" / "best.safetensors", everything=True)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"scale_attn_weights": False, "tie_word_embeddings": False},
        {"n_inner": 100, "activation_function": "relu"},
        {"activation_function": "gelu_pytorch_tanh"},
    ],
    ids=lambda settings: ", ".join(settings) or "as GPT-2",
)
def test_an_imported_gpt2_computes_the_same(settings: dict[str, Any], transformers: Any, tmp_path: Path) -> None:
    theirs = gpt2(transformers, **settings)
    theirs.save_pretrained(tmp_path / "hf")
    tokenizer = save_tokenizer(tmp_path / "hf", transformers)
    stored = imported(tmp_path / "hf", tmp_path / "run")
    ours = stored.build_model()
    assert (stored.tokenizer.vocab_size, stored.tokenizer.end_of_text) == (V, 0)
    mine = stored.tokenizer.encode(TEXT[:60])
    assert mine == tokenizer(TEXT[:60])["input_ids"]
    ids = torch.tensor([mine])
    with torch.no_grad():
        found = theirs(ids, output_attentions=True)
        logits = ours(torch.tensor([mine]))
        assert logits.abs().max() > 2
        torch.testing.assert_close(logits, found.logits, rtol=0, atol=1e-5)
        weights = ours.attention_weights(torch.tensor([mine]))
        torch.testing.assert_close(weights, torch.stack(found.attentions), rtol=0, atol=1e-5)
        mask = torch.ones_like(ids)
        greedy = theirs.generate(ids, attention_mask=mask, max_new_tokens=16, do_sample=False, eos_token_id=None)
    steps = generate(Decoder(ours), [mine], SamplingParameters(temperature=0), max_new_tokens=16)
    assert [draw.token for (draw,) in steps if draw] == greedy[0, len(mine) :].tolist()


def test_shards_halves_other_names_and_masks_give_the_same_run(transformers: Any, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    theirs = gpt2(transformers)
    theirs.save_pretrained(whole)
    save_tokenizer(whole, transformers)
    expected = imported(whole, tmp_path / "of-whole").weights

    shards = Path(shutil.copytree(whole, tmp_path / "shards"))
    (shards / "model.safetensors").unlink()
    theirs.save_pretrained(shards, max_shard_size="100KB")
    assert len(list(shards.glob("model-*.safetensors"))) > 3
    # as the class without an output layer, and older versions with their masks, stored it
    older = Path(shutil.copytree(whole, tmp_path / "older"))
    named = {n.removeprefix("transformer."): t for n, t in load_file(whole / "model.safetensors").items()}
    masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 80, 80).tril().bool() for i in range(3)}
    masks |= {f"h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(3)}
    save_file({**named, **masks, "lm_head.weight": named["wte.weight"].clone()}, older / "model.safetensors")
    for directory in (shards, older):
        found = imported(directory, tmp_path / f"of-{directory.name}").weights
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
        assert found.keys() == expected.keys()
    for dtype in (torch.float16, torch.bfloat16):
        halves = Path(shutil.copytree(whole, tmp_path / str(dtype)))
        copy.deepcopy(theirs).to(dtype).save_pretrained(halves)
        found = imported(halves, tmp_path / f"of-{halves.name}").weights
        assert all(torch.equal(found[name], tensor.to(dtype).float()) for name, tensor in expected.items())


TOKENIZERS = [ByteTokenizer(), CharTokenizer(sorted(set(TEXT))), learned([TEXT] * 20, 290)]
GROUPED = "attention=grouped_query num_key_value_heads=2"
EXPORTED = [
    "",
    "positions=sinusoidal bias=false tie_embeddings=true",
    f"positions=none {GROUPED} qkv_bias=true activation=gelu_tanh",
    "scale=none d_model=64",  # Wq times 4, which no bit is lost by
    "positions=rope qkv_bias=true bias=false",
    f"positions=rope norm=rmsnorm {GROUPED} activation=relu2",
]


@pytest.mark.parametrize("words", EXPORTED, ids=lambda words: words or "default")
def test_our_exports_come_back_equal_also_through_save_pretrained(
    words: str, transformers: Any, tmp_path: Path
) -> None:
    tokenizer = TOKENIZERS[EXPORTED.index(words) % 3]
    before = sharp_checkpoint(*(f"model.{word}" for word in words.split()), tokenizer=tokenizer)
    write_for_transformers(tmp_path / "one", before)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "two", max_shard_size="60KB")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "one").save_pretrained(tmp_path / "two")
    for directory in ("one", "two"):
        after = imported(tmp_path / directory, tmp_path / f"of-{directory}")
        assert after.config.model == before.config.model
        assert after.tokenizer.digest == before.tokenizer.digest
        assert after.weights.keys() == before.weights.keys()
        assert all(torch.equal(tensor, before.weights[name]) for name, tensor in after.weights.items())


def test_what_was_multiplied_out_comes_back_as_plain_gpt2(tmp_path: Path) -> None:
    for words in ("model.attention=latent", "model.scale=none"):
        before = sharp_checkpoint(words, "model.positions=none")
        shutil.rmtree(tmp_path / "hf", ignore_errors=True)
        write_for_transformers(tmp_path / "hf", before)
        after = imported(tmp_path / "hf", tmp_path / words)
        sizes = after.config.model
        assert (sizes.attention, sizes.positions, sizes.scale, sizes.qkv_bias) == (
            "multi_head",
            "learned",
            "head",
            True,
        )
        ids = torch.arange(60).view(2, 30)
        found, expected = after.build_model()(ids), before.build_model()(ids)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_an_export_that_was_trained_elsewhere_comes_back_as_what_it_is_now(tmp_path: Path) -> None:
    """Zeros are no longer zeros: those of biases, which only the plain class has."""
    for words, kept in (("model.positions=none", "none"), ("model.positions=rope", "rope")):
        before = sharp_checkpoint(words)
        shutil.rmtree(tmp_path / "hf", ignore_errors=True)
        write_for_transformers(tmp_path / "hf", before)
        tensors = load_file(tmp_path / "hf" / "model.safetensors")
        name = next(name for name in tensors if name.endswith(("c_attn.bias", "q_proj.bias")))
        tensors[name][:] = torch.arange(len(tensors[name])) / 100
        save_file(tensors, tmp_path / "hf" / "model.safetensors")
        foreign = read_foreign(tmp_path / "hf")
        assert foreign.config.model.positions == {"none": "learned", "rope": "rope"}[kept]
        assert foreign.config.model.qkv_bias
        assert any("cannot come back as it was" in notice for notice in foreign.notices)
        expected = (np.arange(12) + 12) / np.float32(100)
        np.testing.assert_allclose(foreign.weights["blocks.0.attention.heads.1.Wq.bias"], expected, rtol=1e-6)


def test_the_larger_gpt2_fit_by_their_sizes() -> None:
    """355M, 774M and 1.5B parameters (Radford et al. 2019), on the meta device: each tensor has its place."""
    sizes_of = [(48, 1600, 25, 1558), (24, 1024, 16, 355), (36, 1280, 20, 774)]
    for num_blocks, d_model, num_heads, millions in some_of(sizes_of, least=1):
        sizes = ModelConfig(
            context_length=1024, d_model=d_model, num_heads=num_heads, num_blocks=num_blocks,
            activation="gelu_tanh", qkv_bias=True, tie_embeddings=True,
        )  # fmt: skip
        found = fit(sizes, 50257)
        assert round(found.num_parameters / 1e6) == millions
        with torch.device("meta"):
            ours = GPT(sizes, 50257).state_dict()
        written = [name for recipe in found.tensors.values() for part in recipe.parts for name in part.names]
        assert sorted(written) == sorted(ours)
        assert sum(tensor.numel() for tensor in ours.values()) == found.num_parameters
