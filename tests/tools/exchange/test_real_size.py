"""Models with the sizes of published ones and random weights: GPT-2, 124 million parameters, and Qwen3, 0.6 billion."""

import json
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import CORPUS_TEXT, RunCommand
from support.measured import measured

from gpt_cli import load
from gpt_cli.text.tokenizers import byte_letters

PROMPT = "The quick brown fox jumps over the lazy dog."


def write_tokenizer(folder: Path, num_pairs: int = 50_000) -> None:
    """The 256 bytes in GPT-2's order, pairs of them, pairs of common pairs, and end-of-text as the last."""
    letters = sorted(byte_letters())
    common = [byte_letters()[byte] for byte in b" etaoinshrdlucmfwypvbgkjqxz,."]
    order = [*common, *(letter for letter in letters if letter not in common)]
    longer = product(map("".join, product(common, repeat=2)), repeat=2)
    pairs = list(islice(chain(product(order, repeat=2), longer), num_pairs))
    tokens = [*letters, *("".join(pair) for pair in pairs), "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{one} {two}\n" for one, two in pairs))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_gpt2_is_imported_in_little_memory_dumped_sampled_and_trained(
    dtype: torch.dtype, transformers: Any, here: Path, run: RunCommand
) -> None:
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel._from_config(transformers.GPT2Config(), attn_implementation="eager").eval()
    theirs.to(dtype).save_pretrained("hf", max_shard_size="200MB")
    write_tokenizer(Path("hf"))
    Path("my.txt").write_text(CORPUS_TEXT)
    imported = measured("import", "hf", "--out", "run", "--quiet")
    assert imported.code == 0, imported.err
    assert imported.peak < 1.3 * 4 * 124_439_808

    run("attn-dump", "--run", "run", "--prompt", PROMPT, "--out", "a.npz", exits=0)
    dump = np.load("a.npz")
    ids = torch.from_numpy(dump["token_ids"].astype(np.int64))[None]
    with torch.no_grad():
        seen = theirs.float()(ids, output_attentions=True)
        torch.testing.assert_close(load("run").model(ids), seen.logits, rtol=0, atol=1e-5)
    expected = torch.stack(seen.attentions)[:, 0].numpy()
    np.testing.assert_allclose(dump["weights"], expected, rtol=0, atol=1e-5)
    run("sample", "--run", "run", "--prompt", PROMPT, "--max-new-tokens", "8", exits=0)

    settings = ["model.context_length=64", "train.batch_size=1", "train.learning_rate=1e-4", "train.sample_every=null"]
    flags = [word for setting in settings for word in ("--set", setting)]
    words = ("--data", "my.txt", "--out", "tuned", "--max-steps", "20", *flags)
    run("train", "--init-from", "hf", *words, exits=0)
    lines = [json.loads(line) for line in Path("tuned/metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == 20
    assert lines[-1]["loss"] < lines[0]["loss"]


@pytest.mark.long
def test_qwen3_is_imported_in_less_memory_than_its_file_and_sampled(transformers: Any, here: Path) -> None:
    sizes = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
    ends = {"eos_token_id": 151_643, "tie_word_embeddings": True}
    config = transformers.Qwen3Config(vocab_size=151_936, **sizes, **heads, **ends)
    torch.manual_seed(0)
    theirs = transformers.Qwen3ForCausalLM._from_config(config, dtype=torch.bfloat16).eval()
    theirs.save_pretrained("hf", max_shard_size="500MB")
    write_tokenizer(Path("hf"), 151_643 - 256)
    imported = measured("import", "hf", "--out", "run", "--quiet")
    assert imported.code == 0, imported.err
    num_bytes = 2 * theirs.num_parameters()
    assert imported.peak < 1.3 * num_bytes
    assert Path("run/checkpoints/best.safetensors").stat().st_size == pytest.approx(num_bytes, rel=0.01)
    sampled = measured("sample", "--run", "run", "--prompt", PROMPT, "--max-new-tokens", "2", "--dtype", "bfloat16")
    assert sampled.code == 0, sampled.err
    assert sampled.peak < 2.2 * num_bytes
    ids = torch.arange(300, 340)[None]
    with torch.no_grad():
        expected = theirs.float()(ids).logits[..., :151_644]
        del theirs  # 2.4 GB
        torch.testing.assert_close(load("run").model(ids), expected, rtol=0, atol=1e-4)
