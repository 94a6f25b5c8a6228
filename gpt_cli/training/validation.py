"""Measure the loss of a model on validation text; compute the cross-entropy, which training uses too."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gpt_cli.common.machine.devices import autocast, float64_device, to_device, tokens_at_once
from gpt_cli.distributed.collectives import ALONE, Ranks
from gpt_cli.evaluation.nll import LOGITS_AT_ONCE, Observations, Score, byte_lengths, in_batches, score_of
from gpt_cli.model import GPT
from gpt_cli.model.gpt import without_dropout
from gpt_cli.text.sft_examples import IGNORED, Examples
from gpt_cli.text.token_files import Ids, token_windows
from gpt_cli.text.tokenizers import Tokenizer


def cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Return the mean (or sum) of the cross-entropies, in nats, of logits [B, T, V] and targets [B, T].

    With N targets at a position, [B, T, N], returns the mean over all targets. bfloat16 logits are cast to float32.
    """
    if targets.dim() == logits.dim():
        return -_in_full(logits).log_softmax(dim=-1).gather(-1, targets).mean()
    return F.cross_entropy(_in_full(logits).flatten(0, 1), targets.flatten(), reduction=reduction)


def _in_full(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype == torch.bfloat16 else logits


def evaluation_batch_size(context_length: int, vocab_size: int, device: torch.device) -> int:
    """Return how many windows to evaluate at once on a device, independent of the batch size in training."""
    return max(1, min(tokens_at_once(device, 2**12), LOGITS_AT_ONCE // vocab_size) // context_length)


def validation_score(
    model: GPT,
    tokenizer: Tokenizer,
    text: Ids | Examples,
    windows: Sequence[tuple[int, int]],
    *,
    batch_size: int,
    dtype: str,
    count: Callable[[int], object] = lambda _: None,
    by_window: Observations | None = None,
    byte_scale: float = 1,
    ranks: Ranks = ALONE,
) -> Score:
    """Measure the loss, without dropout, on windows (start, end) of `text`; each window starts without context.

    For conversations, only the tokens that training learns from, such as answers, enter the loss. `count` receives the
    number of tokens done since its last call, `by_window` the nats and tokens of each window, longest first. The bytes
    of the tokens, times `byte_scale`, are those of the text. Ranks take batches in turns, and losses are added in a
    fixed order, so that the number of ranks changes nothing.
    """
    device = model.token_embedding.weight.device
    starts, ends = np.array(windows).T
    lengths, byte_counts = ends - starts, byte_lengths(tokenizer)
    goals, num_targets = None, lengths
    ids = text.ids if isinstance(text, Examples) else text
    if isinstance(text, Examples):
        byte_counts[text.template.end_id(tokenizer)] = 0
        goals, learned_before = text.targets, np.concatenate([[0], np.cumsum(text.learned)])
        num_targets = learned_before[ends + 1] - learned_before[starts + 1]
    batches = in_batches(lengths, batch_size)
    # on the device that computes them, because reading each loss would stall a GPU
    of_batches = torch.zeros(len(batches), dtype=torch.float64, device=float64_device(device))
    of_windows = torch.zeros(len(windows), dtype=torch.float64, device=float64_device(device))
    num_bytes = 0
    with without_dropout(model):
        for first in range(0, len(batches), ranks.size):
            together = batches[first : first + ranks.size]
            if ranks.rank < len(together):
                chosen = together[ranks.rank]
                tokens = token_windows(ids, starts[chosen], int(lengths[chosen[0]]) + 1)
                batch = to_device(torch.from_numpy(tokens.astype(np.int32)), device).long()
                target_ids = (tokens if goals is None else token_windows(goals, starts[chosen], tokens.shape[1]))[:, 1:]
                with torch.inference_mode(), autocast(device, dtype):
                    # the two halves of cross_entropy, with the same bits, so that the slow half runs only once
                    log_probabilities = _in_full(model(batch[:, :-1])).flatten(0, 1).log_softmax(dim=1)
                    targets = batch[:, 1:].flatten()
                    if goals is not None:
                        targets = to_device(torch.from_numpy(target_ids), device).flatten()
                    of_batches[first + ranks.rank] = F.nll_loss(log_probabilities, targets, reduction="sum")
                    if by_window:
                        nats = F.nll_loss(log_probabilities, targets, reduction="none").view(len(batch), -1)
                        rows = to_device(torch.from_numpy(chosen), of_windows.device)
                        of_windows[rows] = nats.to(of_windows).sum(dim=1)
                num_bytes += int(byte_counts[target_ids[target_ids != IGNORED]].sum())
            count(sum(int(lengths[chosen].sum()) for chosen in together))
    sums = torch.cat((of_batches, of_windows)).cpu()
    merged = ranks.all_reduce_exact(torch.cat((sums, sums.new_tensor([num_bytes])))).numpy()
    if by_window:
        order = np.concatenate(batches)
        by_window.nats, by_window.amounts = merged[len(batches) : -1][order], num_targets[order]
    return score_of(reduce(add, merged[: len(batches)].tolist()), int(num_targets.sum()), int(merged[-1]) * byte_scale)
