"""Wall time to learn Shakespeare: `gpt train --config shakespeare-cpu` beside a plain trainer; part of `make bench`.

The plain trainer is below, as courses write it: 4 blocks of 4 heads, 128 wide, context of 64, batches of 12, AdamW,
learned positions, GELU, no bias, tied output, float32, torch's flash kernel. After 2,000 steps (1e-3 to 1e-4 by cosine,
100 of them to warm up) its loss on the whole validation text was 1.885; here its step is timed, times 2,000, plus
12 % for its evaluations. `gpt train` is timed as a whole process, imports, evaluations and saving included, for
three seeds; its loss too is that on the whole validation text, in windows of 64 characters.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.config import DataConfig
from gpt_cli.errors import GptError
from gpt_cli.text.load import read_data

STEPS, EVALUATIONS = 2000, 1.12
CONTEXT_LENGTH, BATCH_SIZE = 64, 12


class PlainBlock(nn.Module):
    """[B, T, D] -> [B, T, D]"""

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0):
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.norm_1, self.norm_2 = (nn.LayerNorm(d_model, bias=False) for _ in range(2))
        self.queries_keys_values = nn.Linear(d_model, 3 * d_model, bias=False)
        self.projection_layer = nn.Linear(d_model, d_model, bias=False)
        self.expand = nn.Linear(d_model, 4 * d_model, bias=False)
        self.contract = nn.Linear(4 * d_model, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        parts = self.queries_keys_values(self.norm_1(x)).view(B, T, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(*parts, dropout_p=dropout, is_causal=True)
        attended = self.projection_layer(attended.transpose(1, 2).reshape(B, T, D))
        x = x + F.dropout(attended, dropout, self.training)
        return x + F.dropout(self.contract(F.gelu(self.expand(self.norm_2(x)))), dropout, self.training)


class PlainGPT(nn.Module):
    """ids [B, T] -> logits [B, T, V]"""

    def __init__(
        self,
        vocab_size: int,
        d_model: int = 128,
        num_heads: int = 4,
        num_blocks: int = 4,
        context_length: int = CONTEXT_LENGTH,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.dropout = dropout
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(context_length, d_model)
        self.blocks = nn.ModuleList(PlainBlock(d_model, num_heads, dropout) for _ in range(num_blocks))
        self.norm = nn.LayerNorm(d_model, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        x = F.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


def plain_optimizer(model: nn.Module) -> torch.optim.AdamW:
    """AdamW that decays matrices only."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))


def plain_text(source: str) -> str:
    """The text of a source, with a line break between documents."""
    return "".join("\n" * block.starts + block.text for block in read_data(DataConfig(source=source)).blocks())[1:]


class PlainTrainer:
    """AdamW with decay of matrices, batches at random places."""

    def __init__(self, text: str):
        symbols = sorted(set(text))
        self.ids = torch.tensor([symbols.index(symbol) for symbol in text[:200_000]])
        self.model = PlainGPT(len(symbols))
        self.optimizer = plain_optimizer(self.model)

    def step(self) -> float:
        """Take a step and return its loss."""
        starts = torch.randint(len(self.ids) - CONTEXT_LENGTH, (BATCH_SIZE,))
        inputs = torch.stack([self.ids[i : i + CONTEXT_LENGTH] for i in starts])
        targets = torch.stack([self.ids[i + 1 : i + 1 + CONTEXT_LENGTH] for i in starts])
        loss = F.cross_entropy(self.model(inputs).flatten(0, 1), targets.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="shakespeare-cpu")
    parser.add_argument("--data", default="tinyshakespeare")
    parser.add_argument("--max-steps", type=int, help="of gpt train; default: those of the config")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100, help="timed steps of the plain trainer, for each seed")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    try:
        plain = PlainTrainer(plain_text(arguments.data))
    except GptError as error:
        sys.exit(str(error))
    step_seconds: list[float] = []
    runs: list[tuple[float, float]] = []  # wall seconds, loss
    for seed in range(1, arguments.seeds + 1):
        for number in range(arguments.steps + 10):
            started = time.perf_counter()
            plain.step()
            if number >= 10:
                step_seconds.append(time.perf_counter() - started)
        with tempfile.TemporaryDirectory() as folder:
            command = [
                *(sys.executable, "-m", "gpt_cli", "train", "--config", arguments.config, "--data", arguments.data),
                *("--out", str(Path(folder) / "run"), "--seed", str(seed), "--quiet", "--json"),
                *([] if arguments.max_steps is None else ["--max-steps", str(arguments.max_steps)]),
            ]
            started = time.perf_counter()
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            runs.append((time.perf_counter() - started, json.loads(done.stdout)["validation_loss"]))
    plain_seconds = statistics.median(step_seconds) * STEPS * EVALUATIONS
    wall = statistics.median(seconds for seconds, _ in runs)
    loss = statistics.median(loss for _, loss in runs)
    print(f"config {arguments.config}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"plain trainer: {statistics.median(step_seconds) * 1e3:.1f} ms a step, {plain_seconds:.1f} s for {STEPS:,}")
    print(f"gpt train, {arguments.seeds} seeds: {wall:.1f} s in all, validation loss {loss:.4f} nats per character")
    print(f"ratio {plain_seconds / wall:.1f}")
    print(json.dumps({"plain_seconds": plain_seconds, "seconds": wall, "loss": loss, "runs": runs}))


if __name__ == "__main__":
    main()
