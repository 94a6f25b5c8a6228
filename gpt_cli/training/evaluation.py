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
from gpt_cli.text.tokenizer import Tokenizer

# of an evaluation for which the batch size of the training does not matter
_TOKENS_AT_ONCE = {"cpu": 2**12, "cuda": 2**15}


def cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Loss in nats: logits [B, T, V] and targets [B, T] -> a scalar; computed in float32 at least."""
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction=reduction)


def evaluation_batch_size(context_length: int, vocab_size: int, device: torch.device) -> int:
    """How many windows of context_length a device evaluates at once, whatever the training's batch size."""
    return max(1, min(_TOKENS_AT_ONCE[device.type], LOGITS_AT_ONCE // vocab_size) // context_length)


def evaluate(
    model: GPT,
    tokenizer: Tokenizer,
    ids: np.ndarray,
    windows: Sequence[tuple[int, int]],
    *,
    batch_size: int,
    dtype: str,
    count: Callable[[int], object] = lambda _: None,
) -> Score:
    """The loss on windows (start, end) of ids; each window starts without context. Draws nothing at random.

    `count` receives the number of tokens done since its last call.
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
                nats += cross_entropy(model(batch[:, :-1]), batch[:, 1:], "sum")
            num_tokens += batch[:, 1:].numel()
            num_bytes += int(lengths[chosen[:, 1:]].sum())
            count(batch[:, 1:].numel())
    finally:
        model.train(was_training)
    return score_of(nats.item(), num_tokens, num_bytes)
