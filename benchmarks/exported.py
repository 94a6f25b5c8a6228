"""How far the logits and the attention of a trained model are from those of its export in transformers.

    python -m benchmarks.exported RUN

Texts are 40 windows of 128 tokens of the run's validation text. Prints the differences of both from each other, from
the same model in float64, and with our table of angles put in the place of theirs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpt_cli import load
from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.model.positions import RotaryPositions
from gpt_cli.text.encode import encode_corpus
from gpt_cli.text.load import read_data
from gpt_cli.text.sft_examples import Examples
from gpt_cli.tools.exchange.export_model import write_for_transformers

TEXTS, TOKENS = 40, 128


class OurAngles(torch.nn.Module):
    """Our cosines and sines, handed over as their module does."""

    def __init__(self, size: int):
        super().__init__()
        self.rotary = RotaryPositions(TOKENS, size)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        cosines, sines = self.rotary.at(position_ids)
        return cosines.to(x.dtype), sines.to(x.dtype)


def report(what: str, differences: Tensor) -> None:
    """Print the median and the largest of the largest difference of each text, and how many are above 1e-5."""
    worst = differences.abs().flatten(1).amax(1)
    above = f"{(worst > 1e-5).sum()} of {TEXTS} above 1e-5"
    print(f"{what:36} median {worst.median():.1e}, largest {worst.max():.1e}, {above}")


@torch.no_grad()
def main(run: str) -> None:
    import transformers

    ours = load(run)
    text = encode_corpus(read_data(ours.config.data), ours.config, ours.tokenizer)
    assert not isinstance(text.validation_ids, Examples)
    starts = torch.linspace(0, len(text.validation_ids) - TOKENS, TEXTS).long().tolist()
    ids = torch.tensor([text.validation_ids[start : start + TOKENS].astype(int).tolist() for start in starts])
    with tempfile.TemporaryDirectory() as folder:
        write_for_transformers(Path(folder) / "hf", read_checkpoint(RunFiles(Path(run)).best))
        theirs: Any = transformers.AutoModelForCausalLM.from_pretrained(
            Path(folder) / "hf", dtype=torch.float32, attn_implementation="eager"
        )
    logits, seen = ours.model(ids), theirs(ids, output_attentions=True)
    report("logits, gpt and transformers", logits - seen.logits)
    weights = ours.model.attention_weights(ids) - torch.stack(seen.attentions)
    report("attention, gpt and transformers", weights.transpose(0, 1))
    if hasattr(theirs.model, "rotary_emb"):
        theirs.model.rotary_emb = OurAngles(ours.config.model.d_model // ours.config.model.num_heads)
        report("logits, with our angles in theirs", logits - theirs(ids).logits)
    exact = ours.model.double()(ids)
    report("logits, gpt and float64", logits - exact)
    report("logits, transformers and float64", seen.logits - exact)


if __name__ == "__main__":
    main(sys.argv[1])
