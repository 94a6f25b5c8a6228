"""How surprised a model is by a text, token by token and on average."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from gpt_cli.machine.devices import autocast
from gpt_cli.model import GPT
from gpt_cli.model.finite import require_finite
from gpt_cli.text.tokenizer import Tokenizer

LOGITS_AT_ONCE = 2**26  # 256 MB in float32


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
    batch_size: int | None = None,
    count: Callable[[int], object] = lambda _: None,
) -> np.ndarray:
    """-log of the chance of each token but the first, in nats: ids [N] -> float64 [N - 1].

    Windows of context_length C advance by `stride` (1 to C); each scores the tokens that the one before did not, so
    that a token is predicted from at least C - stride tokens before it, where there are so many. A stride of C is the
    evaluation of training. `count` receives the number of tokens done since its last call. A batch has `batch_size`
    windows; None takes what memory holds, at most 16.
    """
    C, num_targets = model.config.context_length, len(ids) - 1
    assert 1 <= stride <= C
    batch_size = batch_size or max(1, min(16, LOGITS_AT_ONCE // (model.vocab_size * C)))
    num_windows = 1 + max(0, -(-(num_targets - C) // stride))
    starts = np.arange(num_windows) * stride
    ends = np.minimum(starts + C, num_targets)
    device = model.token_embedding.weight.device
    found = np.empty(num_targets)
    for numbers, chosen in in_batches(ids, starts, ends, batch_size):
        windows = torch.from_numpy(chosen.astype(np.int64)).to(device)
        with torch.inference_mode(), autocast(device, dtype):
            logits = model(windows[:, :-1])
        logits = logits.double() if logits.dtype == torch.float64 else logits.float()
        nats = -logits.log_softmax(dim=-1).gather(-1, windows[:, 1:, None])[..., 0]
        for number, row in zip(numbers, nats.cpu().double().numpy(), strict=True):
            known = 0 if number == 0 else int(ends[number - 1] - starts[number])
            found[starts[number] + known : ends[number]] = row[known:]
            count(len(row) - known)
    return found


def in_batches(
    ids: np.ndarray, starts: np.ndarray, ends: np.ndarray, batch_size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Windows of ids in batches of equal length, the longest first: their numbers [B] and their ids [B, T + 1].

    A window has inputs from start to end - 1 and targets one further.
    """
    lengths = ends - starts
    for length in np.unique(lengths)[::-1]:
        numbers = np.flatnonzero(lengths == length)
        for i in range(0, len(numbers), batch_size):
            chosen = numbers[i : i + batch_size]
            yield chosen, ids[starts[chosen, None] + np.arange(length + 1)]


def byte_lengths(tokenizer: Tokenizer) -> np.ndarray:
    """The bytes of each token's text: int64 [V]; end-of-text has none."""
    return np.array([len(token) for token in tokenizer.token_bytes] + [0])


def score_of(nats: float, num_tokens: int, num_bytes: int) -> Score:
    """The means, from the sum of surprisals in nats, the tokens that were predicted, and the bytes of their text."""
    loss = nats / num_tokens
    perplexity = math.exp(loss) if loss < 700 else None
    return Score(num_tokens, loss, perplexity, nats / math.log(2) / max(1, num_bytes))


def score(nats: np.ndarray, ids: np.ndarray, tokenizer: Tokenizer, where: str = "checkpoint") -> Score:
    """The means of the surprisals [N - 1] of ids [N]; raises CheckpointError, at `where`, when they are not finite."""
    require_finite(torch.from_numpy(nats), "surprisals", where)
    return score_of(float(nats.sum()), len(nats), int(byte_lengths(tokenizer)[ids[1:]].sum()))
