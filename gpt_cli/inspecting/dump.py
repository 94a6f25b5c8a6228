"""What the heads of a model do on one prompt, as plain arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gpt_cli.config import ModelConfig
from gpt_cli.errors import UsageError, shown
from gpt_cli.model import GPT
from gpt_cli.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Chance:
    """How likely the model held a token that it wrote: from 0 to 1, and its place among all, from 1."""

    probability: float
    rank: int


@dataclass(frozen=True)
class AttentionDump:
    """Stages of the chosen heads on one prompt.

    `stages` maps a name to [layers, heads, T, T] (weights, scores) or [layers, heads, T, K] (the others; queries and
    keys of latent attention are wider). In the first,
    row is the token that looks, column the token it looks at. The last tokens may be the model's own; `chances` has
    one entry for each of them.
    """

    tokens: tuple[str, ...]
    token_ids: tuple[int, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    stages: Mapping[str, np.ndarray]
    chances: tuple[Chance, ...] = ()

    @property
    def weights(self) -> np.ndarray:
        return self.stages["weights"]


def dump_attention(
    model: GPT,
    tokenizer: Tokenizer,
    ids: Sequence[int],
    *,
    layers: Sequence[int],
    heads: Sequence[int],
    stages: Sequence[str] = ("weights",),
    file_dtype: str = "float32",
    num_generated: int = 0,
) -> AttentionDump:
    """The wanted stages of the wanted heads on ids [T], in float32 or float16; the last ones are the model's own."""
    device = model.token_embedding.weight.device
    batch = torch.tensor([list(ids)], device=device)
    parts: dict[str, list[np.ndarray]] = {stage: [] for stage in stages}
    for of_layer in model.attention_stages(batch, layers, heads):
        for stage in stages:
            found = getattr(of_layer, stage)[0].cpu().numpy()
            if file_dtype == "float16" and np.abs(found).max() > np.finfo(np.float16).max:
                wrong = f"float16 cannot hold {stage} of {np.abs(found).max():g}"
                raise UsageError("--file-dtype", wrong, "use float32")
            parts[stage].append(found.astype(file_dtype, copy=False))
    arrays = {stage: np.stack(found) for stage, found in parts.items()}
    tokens = tuple(tokenizer.token_text(token) for token in ids)
    return AttentionDump(tokens, tuple(ids), tuple(layers), tuple(heads), arrays, _chances(model, batch, num_generated))


@torch.inference_mode()
def _chances(model: GPT, batch: torch.Tensor, num_generated: int) -> tuple[Chance, ...]:
    """Those of the last tokens of a batch [1, T]."""
    if not num_generated:
        return ()
    logits = model(batch)[0, -num_generated - 1 : -1].double()
    own = logits.gather(1, batch[0, -num_generated:, None])
    probabilities = (own - logits.logsumexp(dim=1, keepdim=True)).exp()[:, 0]
    ranks = 1 + (logits > own).sum(dim=1)
    return tuple(Chance(p, r) for p, r in zip(probabilities.tolist(), ranks.tolist(), strict=True))


def count_numbers(stages: Sequence[str], num_tokens: int, sizes: ModelConfig) -> int:
    """How many numbers the stages of a head hold."""
    widths = {"weights": num_tokens, "scores": num_tokens, "queries": sizes.query_size, "keys": sizes.query_size}
    return sum(num_tokens * widths.get(stage, sizes.head_size) for stage in stages)


def parse_selection(text: str | None, count: int, flag: str) -> tuple[int, ...]:
    """The numbers that `0,3-5` means, sorted; None means all of 0..count-1. Raises UsageError."""
    if text is None:
        return tuple(range(count))
    chosen: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 20:
            raise UsageError(flag, f"{shown(part)} is not a number or a range", "write for example 0,3-5")
        low, high = int(first), int(last or first)
        if low > high or high >= count:
            raise UsageError(flag, f"{shown(part)} is out of range", f"this model has 0 to {count - 1}")
        chosen.update(range(low, high + 1))
    return tuple(sorted(chosen))
