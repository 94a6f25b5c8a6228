"""Makes the golden checkpoints of the present format: `python tests/golden/make.py`. Those of older formats stay.

Each model learns a repeated text until it continues the text with certainty.
"""

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.header import FORMAT_VERSION
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.cli.app import main

FOLDER = Path(__file__).parent
NUM_TOKENS = 12
SIZES = """
model.d_model=16 model.num_heads=2 model.num_blocks=1 model.context_length=32 model.tie_embeddings=true
train.batch_size=8 train.max_steps=300 train.learning_rate=1e-2 train.dtype=float32 train.device=cpu
train.sample_every=null train.save_every=300 data.validation_fraction=0.2
"""


@dataclass(frozen=True)
class Golden:
    """A text to learn, how, and which file to keep; `best` ones have no optimizer state."""

    text: str
    prompt: str
    settings: tuple[str, ...]
    best: bool


GOLDEN = {
    "byte-pairs": Golden(
        "one two three four five six seven eight nine ten eleven twelve. " * 60,
        "three four five",
        ("tokenizer.kind=bpe", "tokenizer.vocab_size=280"),
        best=False,
    ),
    "characters": Golden(
        "春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。" * 60,
        "春眠不觉",
        ("tokenizer.kind=char", "model.positions=rope", "model.norm=rmsnorm", "model.activation=relu2"),
        best=True,
    ),
}


def greedy(path: Path, prompt: str) -> tuple[list[int], float]:
    """The tokens that follow a prompt, each the likeliest, and by how much at least (in logits)."""
    stored = read_checkpoint(path, everything=True)
    model, ids = stored.build_model(), stored.tokenizer.encode(prompt)
    margins = []
    for _ in range(NUM_TOKENS):
        with torch.inference_mode():
            first, second = model(torch.tensor([ids]))[0, -1].topk(2).values.tolist()
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
        margins.append(first - second)
    assert len(ids) <= stored.config.model.context_length
    return ids[-NUM_TOKENS:], min(margins)


def make() -> None:
    expected = json.loads((FOLDER / "expected.json").read_text()) if (FOLDER / "expected.json").exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, golden in GOLDEN.items():
            Path("corpus.txt").write_text(golden.text)
            flags = [word for setting in (*SIZES.split(), *golden.settings) for word in ("--set", setting)]
            assert main(["train", "--config", "smoke", "--data", "corpus.txt", "--out", name, "--quiet", *flags]) == 0
            run = RunDirectory(Path(name))
            file = f"format-{FORMAT_VERSION}-{name}.safetensors"
            shutil.copyfile(run.best if golden.best else run.step_file(300), FOLDER / file)
            tokens, margin = greedy(FOLDER / file, golden.prompt)
            expected[file] = {"text": golden.text[: len(golden.text) // 60], "prompt": golden.prompt, "tokens": tokens}
            print(file, (FOLDER / file).stat().st_size, "bytes, margin", round(margin, 2))
    (FOLDER / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    make()
