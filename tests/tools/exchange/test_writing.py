import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from support.exchange import sharp_checkpoint

from gpt_cli.checkpoints.checkpoint import read_checkpoint, save_checkpoint
from gpt_cli.common import files
from gpt_cli.errors import EnvironmentFailure, UsageError
from gpt_cli.tools.exchange.export_hf import computed, write_for_transformers
from gpt_cli.tools.exchange.export_model import write_file
from gpt_cli.tools.exchange.export_tensors import Part, Recipe
from gpt_cli.tools.exchange.request import FILES, require_directory


def test_a_product_is_rounded_once() -> None:
    """1 + 2^-20 squared is 1 + 2^-19 + 2^-40, of which float32 keeps all but the last; less 1 - 2^-19 in two steps."""
    ours = {"a": torch.tensor([[1 + 2**-20, 1.0]]), "b": torch.tensor([[1 + 2**-20], [-1.0]])}
    assert computed(Recipe((1, 1), (Part(("a", "b")),)), ours).item() == 2**-19 + 2**-40


def test_the_directory_has_weights_config_and_tokenizer(tmp_path: Path) -> None:
    stored = sharp_checkpoint("data.source=/home/ann/secret/diary.txt", "model.tie_embeddings=true")
    out = tmp_path / "made" / "hf"
    write_for_transformers(out, stored)
    assert sorted(os.listdir(out)) == sorted(FILES)
    assert os.listdir(tmp_path / "made") == ["hf"]
    config, generation, about_tokenizer = (
        json.loads((out / name).read_bytes())
        for name in ("config.json", "generation_config.json", "tokenizer_config.json")
    )
    assert (config["model_type"], config["n_layer"], config["vocab_size"]) == ("gpt2", 3, 257)
    assert config["gpt_cli"]["tokenizer"] == {"kind": "byte"}
    assert config["gpt_cli"]["config"]["model"] == stored.config.model.model_dump()
    assert (generation["eos_token_id"], about_tokenizer["model_max_length"]) == (256, 80)
    assert not any("secret" in path.read_text(errors="replace") for path in out.iterdir())
    assert "diary.txt" in (out / "README.md").read_text()
    with safe_open(out / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118 - it is no dictionary
        assert torch.equal(file.get_tensor("transformer.wte.weight"), stored.weights["token_embedding.weight"])


def test_an_export_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "hf"
    write_for_transformers(out, sharp_checkpoint("model.num_blocks=1"))
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def full(descriptor: int, content: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "_write_all", full)
        with pytest.raises(EnvironmentFailure, match="no space left"):
            write_for_transformers(out, sharp_checkpoint("model.num_blocks=2"))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert os.listdir(tmp_path) == ["hf"]


def test_a_link_is_kept_and_what_it_leads_to_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for num_blocks in (1, 2):
        write_for_transformers(tmp_path / "link", sharp_checkpoint(f"model.num_blocks={num_blocks}"))
        assert json.loads((tmp_path / "real" / "config.json").read_bytes())["n_layer"] == num_blocks
    assert (tmp_path / "link").is_symlink()


def test_the_file_has_the_weights_and_nothing_of_this_machine(tmp_path: Path) -> None:
    stored = sharp_checkpoint("data.source=/home/ann/diary.txt")
    trained = replace(stored, optimizer_state={"mean": torch.ones(3)}, progress=replace(stored.progress, best_loss=2.5))
    save_checkpoint(tmp_path / "run.safetensors", trained)
    write_file(tmp_path / "shared.safetensors", read_checkpoint(tmp_path / "run.safetensors"))
    shared = read_checkpoint(tmp_path / "shared.safetensors", everything=True)
    assert all(torch.equal(shared.weights[name], weight) for name, weight in stored.weights.items())
    assert (shared.optimizer_state, shared.progress.environment, shared.progress.best_loss) == ({}, {}, 2.5)
    assert shared.config.data.source == "diary.txt"
    assert shared.config.model == stored.config.model
    content = (tmp_path / "shared.safetensors").read_bytes()
    assert b"/home/ann" not in content
    assert b"of this machine" not in content


def test_an_export_that_was_trained_on_elsewhere_is_not_replaced(transformers: Any, tmp_path: Path) -> None:
    write_for_transformers(tmp_path / "hf", sharp_checkpoint("model.num_blocks=1"))
    require_directory(tmp_path / "hf", "hf")
    transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf").save_pretrained(tmp_path / "hf")
    with pytest.raises(UsageError, match="has files that gpt export did not write"):
        require_directory(tmp_path / "hf", "hf")
