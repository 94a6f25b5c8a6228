"""Our own exports on their way back."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.exchange import imported, sharp_checkpoint
from support.families import TEXT
from support.tokenizers import learned

from gpt_cli.text.tokenizers import ByteTokenizer, CharTokenizer
from gpt_cli.tools.exchange.export_hf import write_for_transformers
from gpt_cli.tools.exchange.import_hf import read_foreign

TOKENIZERS = [ByteTokenizer(), CharTokenizer(sorted(set(TEXT))), learned([TEXT] * 20, 290)]
GROUPED = "attention=grouped_query num_key_value_heads=2"
EXPORTED = [
    f"positions=none {GROUPED} qkv_bias=true activation=gelu_tanh tie_embeddings=true",
    "positions=sinusoidal scale=none d_model=64 bias=false",  # Wq times 4, which no bit is lost by
    f"positions=rope norm=rmsnorm {GROUPED} activation=relu2",
]


@pytest.mark.parametrize("words", EXPORTED)
def test_our_exports_return_equal_also_through_save_pretrained(words: str, transformers: Any, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[EXPORTED.index(words)]
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
        assert (sizes.attention, sizes.positions, sizes.scale) == ("multi_head", "learned", "head")
        assert sizes.qkv_bias
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
        assert any("cannot restore the form" in notice for notice in foreign.notices)
        expected = (np.arange(12) + 12) / np.float32(100)
        np.testing.assert_allclose(foreign.weights["blocks.0.attention.heads.1.Wq.bias"], expected, rtol=1e-6)
