"""How well a model predicts text it was not trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gpt_cli.machine.devices import autocast
from gpt_cli.model import GPT
from gpt_cli.sampling.scoring import LOGITS_AT_ONCE, Score, byte_lengths, in_batches, score_of
from gpt_cli.text.token_files import Ids
from gpt_cli.text.tokenizer import Tokenizer

# of an evaluation for which the batch size of the training does not matter
_TOKENS_AT_ONCE = {"cpu": 2**12, "cuda": 2**15}


def cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Loss in nats: logits [B, T, V] and targets [B, T] -> a scalar; computed in float32 at least."""
    return F.cross_entropy(_in_full(logits).flatten(0, 1), targets.flatten(), reduction=reduction)


def _log_chances(logits: Tensor) -> Tensor:
    """Logits [B, T, V] -> the logarithm of each token's chance [B * T, V], in float32 at least."""
    return _in_full(logits).flatten(0, 1).log_softmax(dim=1)


def _in_full(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype == torch.bfloat16 else logits


class WindowLosses:
    """What the windows of an evaluation cost, and how exactly they tell the loss of such texts."""

    def __init__(self) -> None:
        self._sums: list[Tensor] = []  # stay where they are computed, as a GPU would wait to be read
        self._lengths: list[int] = []

    def add(self, nats: Tensor) -> None:
        """Take the surprisals of a batch of windows: [B, T]."""
        self._sums.append(nats.double().sum(dim=1))
        self._lengths += [nats.shape[1]] * len(nats)

    def standard_error(self) -> float | None:
        """The standard error of the loss over these windows, in nats per token; None for fewer than two."""
        sums = torch.cat(self._sums).cpu().numpy() if self._sums else np.empty(0)
        return standard_error(sums, np.array(self._lengths))


def standard_error(nats: np.ndarray, num_tokens: np.ndarray) -> float | None:
    """The standard error of sum(nats) / sum(num_tokens), windows being drawn, not tokens: nats [N], num_tokens [N].

    Tokens of a window share its text, so they vary together, and a window counts as one observation. As windows
    differ in length, the loss is a ratio R of two sums: with e = nats - R * num_tokens, its standard error is
    sqrt(N / (N - 1) * sum(e^2)) / sum(num_tokens), in nats per token (Cochran 1977, Sampling Techniques, section
    2.11, for a sample from a text without end). None where there are fewer than two windows.
    """
    N = len(nats)
    if N < 2:
        return None
    ratio = nats.sum() / num_tokens.sum()
    deviations = nats - ratio * num_tokens
    return float(np.sqrt(N / (N - 1) * (deviations**2).sum()) / num_tokens.sum())


def evaluation_batch_size(context_length: int, vocab_size: int, device: torch.device) -> int:
    """How many windows of context_length a device evaluates at once, whatever the training's batch size."""
    return max(1, min(_TOKENS_AT_ONCE[device.type], LOGITS_AT_ONCE // vocab_size) // context_length)


def evaluate(
    model: GPT,
    tokenizer: Tokenizer,
    ids: Ids,
    windows: Sequence[tuple[int, int]],
    *,
    batch_size: int,
    dtype: str,
    count: Callable[[int], object] = lambda _: None,
    by_window: WindowLosses | None = None,
) -> Score:
    """The loss on windows (start, end) of ids; each window starts without context. Draws nothing at random.

    `count` receives the number of tokens done since its last call, `by_window` what each window costs.
    """
    device = model.token_embedding.weight.device
    # summed where it is computed: to read it after each batch would make a GPU wait
    nats, num_tokens, num_bytes = torch.zeros((), dtype=torch.float64, device=device), 0, 0
    lengths = byte_lengths(tokenizer)
    starts, ends = np.array(windows).T
    was_training = model.training
    model.eval()
    try:
        for _, chosen in in_batches(ids, starts, ends, batch_size):
            batch = torch.from_numpy(chosen.astype(np.int32)).to(device, non_blocking=True).long()
            with torch.inference_mode(), autocast(device, dtype):
                # the two halves of cross_entropy, to the bit: the slow one once
                log_chances, targets = _log_chances(model(batch[:, :-1])), batch[:, 1:].flatten()
                nats += F.nll_loss(log_chances, targets, reduction="sum")
                if by_window:
                    by_window.add(F.nll_loss(log_chances, targets, reduction="none").view(len(batch), -1))
            num_tokens += batch[:, 1:].numel()
            num_bytes += int(lengths[chosen[:, 1:]].sum())
            count(batch[:, 1:].numel())
    finally:
        model.train(was_training)
    return score_of(nats.item(), num_tokens, num_bytes)
