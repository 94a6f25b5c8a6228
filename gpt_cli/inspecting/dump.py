"""What the heads of a model do on one prompt, as plain arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gpt_cli.errors import UsageError, shown
from gpt_cli.model import GPT
from gpt_cli.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class AttentionDump:
    """Stages of the chosen heads on one prompt.

    `stages` maps a name to [layers, heads, T, T] (weights, scores) or [layers, heads, T, K] (the others);
    row is the token that looks, column the token it looks at.
    """

    tokens: tuple[str, ...]
    token_ids: tuple[int, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    stages: Mapping[str, np.ndarray]

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
) -> AttentionDump:
    """The wanted stages of the wanted heads on ids [T], in float32 or float16."""
    device = model.token_embedding.weight.device
    batch = torch.tensor([list(ids)], device=device)
    parts: dict[str, list[np.ndarray]] = {stage: [] for stage in stages}
    for of_layer in model.attention_stages(batch, layers, heads):
        for stage in stages:
            found = getattr(of_layer, stage)[0].cpu().numpy()
            if file_dtype == "float16" and np.abs(found).max() > np.finfo(np.float16).max:
                wrong = f"float16 cannot hold {stage} of {np.abs(found).max():g}"
                raise UsageError("--file-dtype", wrong, "use float32")
            parts[stage].append(found.astype(file_dtype))
    arrays = {stage: np.stack(found) for stage, found in parts.items()}
    tokens = tuple(tokenizer.token_text(token) for token in ids)
    return AttentionDump(tokens, tuple(ids), tuple(layers), tuple(heads), arrays)


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
