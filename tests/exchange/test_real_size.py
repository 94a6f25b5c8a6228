"""A GPT-2 with the sizes of the published one, 124 million parameters, and random weights."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.faults import SCALE
from support.helpers import CORPUS_TEXT, RunCommand

from gpt_cli import load
from gpt_cli.text.base_tokenizer import byte_letters

PROMPT = "The quick brown fox jumps over the lazy dog."
# runs gpt, then prints the most memory that it has held, in kB; getrusage would count the process that started it
MEASURED = (
    "import sys\nfrom gpt_cli.__main__ import run\ncode = run(sys.argv[1:])\n"
    "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\nsys.exit(code)"
)


def write_tokenizer(folder: Path) -> None:
    """The 256 bytes in GPT-2's order, 50,000 pairs of them, and end-of-text as the last: 50,257 tokens."""
    letters = sorted(byte_letters())
    common = [byte_letters()[byte] for byte in b" etaoinshrdlucmfwypvbgkjqxz,."]
    pairs = list(islice(product([*common, *(letter for letter in letters if letter not in common)], repeat=2), 50_000))
    tokens = [*letters, *("".join(pair) for pair in pairs), "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{one} {two}\n" for one, two in pairs))


@pytest.mark.long
@pytest.mark.skipif(SCALE < 1, reason="writing and training 124 million parameters takes a minute")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_gpt2_is_imported_in_little_memory_dumped_sampled_and_trained(
    dtype: torch.dtype, transformers: Any, here: Path, run: RunCommand
) -> None:
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel._from_config(transformers.GPT2Config(), attn_implementation="eager").eval()
    theirs.to(dtype).save_pretrained("hf", max_shard_size="200MB")
    write_tokenizer(Path("hf"))
    Path("my.txt").write_text(CORPUS_TEXT)
    command = [sys.executable, "-c", MEASURED, "import", "hf", "--out", "run", "--quiet"]
    imported = subprocess.run(command, capture_output=True, text=True)
    assert imported.returncode == 0, imported.stderr
    assert 1024 * int(imported.stdout.split()[-1]) < 1.3 * 4 * 124_439_808

    outcome = run("attn-dump", "--run", "run", "--prompt", PROMPT, "--out", "a.npz")
    assert outcome.code == 0, outcome.err
    dump = np.load("a.npz")
    ids = torch.from_numpy(dump["token_ids"].astype(np.int64))[None]
    with torch.no_grad():
        seen = theirs.float()(ids, output_attentions=True)
        torch.testing.assert_close(load("run").model(ids), seen.logits, rtol=0, atol=1e-5)
    expected = torch.stack(seen.attentions)[:, 0].numpy()
    np.testing.assert_allclose(dump["weights"], expected, rtol=0, atol=1e-5)
    assert run("sample", "--run", "run", "--prompt", PROMPT, "--max-new-tokens", "8").code == 0

    settings = ["model.context_length=64", "train.batch_size=1", "train.learning_rate=1e-4", "train.sample_every=null"]
    flags = [word for setting in settings for word in ("--set", setting)]
    outcome = run(
        "train", "--init-from", "hf", "--data", "my.txt", "--out", "tuned", "--max-steps", "20", *flags, "--json"
    )
    assert outcome.code == 0, outcome.err
    lines = [json.loads(line) for line in Path("tuned/metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == 20
    assert lines[-1]["loss"] < lines[0]["loss"]
