"""How surprised a model is by a text, token by token."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from gpt_cli.errors import CheckpointError
from gpt_cli.machine import autocast
from gpt_cli.model import GPT
from gpt_cli.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Score:
    """The mean over the tokens of a text that were predicted, in nats per token and bits per byte."""

    num_tokens: int
    loss: float
    perplexity: float | None  # None where it is too large for a float
    bits_per_byte: float


def surprisals(
    model: GPT,
    ids: np.ndarray,
    *,
    stride: int,
    dtype: str = "float32",
    batch_size: int = 16,
    progress: Callable[[int], object] = lambda _: None,
) -> np.ndarray:
    """-log of the chance of each token but the first, in nats: ids [N] -> float64 [N - 1].

    Windows of context_length C advance by `stride` (1 to C); each gives what the one before did not, so that a token
    is predicted from at least C - stride tokens before it, where there are so many. A stride of C is the evaluation
    of training. `progress` is told the tokens done since it was last told.
    """
    C, num_targets = model.config.context_length, len(ids) - 1
    assert 1 <= stride <= C
    num_windows = 1 + max(0, -(-(num_targets - C) // stride))
    ends = np.minimum(np.arange(num_windows) * stride + C, num_targets)
    starts = np.arange(num_windows) * stride
    device = model.token_embedding.weight.device
    found = np.empty(num_targets)
    # the last window may be shorter, and has a batch of its own
    batches = [np.arange(i, min(i + batch_size, num_windows - 1)) for i in range(0, num_windows - 1, batch_size)]
    for batch in [*batches, np.array([num_windows - 1])]:
        length = int(ends[batch[0]] - starts[batch[0]])
        windows = torch.from_numpy(ids[starts[batch, None] + np.arange(length + 1)].astype(np.int64)).to(device)
        with torch.inference_mode(), autocast(device, dtype):
            logits = model(windows[:, :-1])
        logits = logits.double() if logits.dtype == torch.float64 else logits.float()
        nats = -logits.log_softmax(dim=-1).gather(-1, windows[:, 1:, None])[..., 0]
        for number, row in zip(batch, nats.cpu().double().numpy(), strict=True):
            known = 0 if number == 0 else int(ends[number - 1] - starts[number])
            found[starts[number] + known : ends[number]] = row[known:]
            progress(length - known)
    return found


def score(nats: np.ndarray, ids: np.ndarray, tokenizer: Tokenizer) -> Score:
    """The means of the surprisals [N - 1] of ids [N]. Raises CheckpointError when they are no numbers."""
    byte_lengths = np.array([len(token) for token in tokenizer.token_bytes] + [0])
    loss = float(nats.mean())
    if not math.isfinite(loss):
        raise CheckpointError("checkpoint", f"its model gives this text a loss of {loss:g}", "it cannot be used")
    perplexity = math.exp(loss) if loss < 700 else None
    num_bytes = int(byte_lengths[ids[1:]].sum())
    return Score(len(nats), loss, perplexity, float(nats.sum()) / math.log(2) / max(1, num_bytes))
