"""How well a model predicts text it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gpt_cli.machine import autocast
from gpt_cli.model import GPT
from gpt_cli.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Evaluation:
    """Mean loss over some tokens, in nats per token and in bits per byte of their text."""

    loss: float
    num_tokens: int
    bits_per_byte: float


def cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Loss in nats: logits [B, T, V] and targets [B, T] -> a scalar; computed in float32 at least."""
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction=reduction)


def evaluate(
    model: GPT,
    tokenizer: Tokenizer,
    ids: np.ndarray,
    windows: Sequence[tuple[int, int]],
    *,
    batch_size: int,
    dtype: str,
    progress: Callable[[int], object] = lambda _: None,
) -> Evaluation:
    """The loss on windows (start, end) of ids; each window starts without context. Draws nothing at random.

    `progress` is told the tokens done since it was last told.
    """
    device = model.token_embedding.weight.device
    byte_lengths = np.array([len(token) for token in tokenizer.token_bytes] + [0])
    was_training = model.training
    model.eval()
    # summed where it is computed: to read it after each batch would make a GPU wait
    total, num_tokens, num_bytes = torch.zeros((), dtype=torch.float64, device=device), 0, 0
    # windows of equal length share a batch; only the last one may be shorter
    for length in sorted({end - start for start, end in windows}, reverse=True):
        starts = [start for start, end in windows if end - start == length]
        for i in range(0, len(starts), batch_size):
            chosen = ids[np.array(starts[i : i + batch_size])[:, None] + np.arange(length + 1)].astype(np.int32)
            batch = torch.from_numpy(chosen).to(device, non_blocking=True).long()
            with torch.inference_mode(), autocast(device, dtype):
                total += cross_entropy(model(batch[:, :-1]), batch[:, 1:], "sum")
            num_tokens += batch[:, 1:].numel()
            num_bytes += int(byte_lengths[chosen[:, 1:]].sum())
            progress(batch[:, 1:].numel())
    model.train(was_training)
    nats = total.item()
    return Evaluation(nats / num_tokens, num_tokens, nats / math.log(2) / max(1, num_bytes))
