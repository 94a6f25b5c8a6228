"""Score attention heads by means over their attention weights, such as the mean weight on the first token."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from gpt_cli.attention_maps.head_metrics import COLUMNS, PATTERNS, HeadScores
from gpt_cli.attention_maps.snapshots import Snapshot
from gpt_cli.common.limits import HEADS_WINDOW
from gpt_cli.common.machine.devices import float64_device, to_device
from gpt_cli.common.rng import permutation, stream_key
from gpt_cli.evaluation.nll import in_batches
from gpt_cli.model import GPT
from gpt_cli.model.attention import Stages
from gpt_cli.model.costs import estimate
from gpt_cli.model.gpt import require_finite
from gpt_cli.text.token_files import Ids, token_windows
from gpt_cli.text.tokenizers import Tokenizer

NUM_REPEATS = 8  # sequences of random tokens on which induction is measured, at most
MOST_OPERATIONS = 6 * 10**11  # on all these sequences, unless a single one takes more: about ten seconds on two cores
WEIGHTS_AT_ONCE = 2**20  # of a layer, at most, unless one sequence has more
BYTES_PER_WEIGHT = 40  # about six arrays of weights, and gaps that malloc leaves between blocks of this size


def pattern_sums(weights: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Sum six scores of heads (PATTERNS) over queries, and count queries: [B, H, T, T], [B, T] -> float64 [6, H], [6].

    All scores leave out the first query, which attends only to itself. The score duplicate_token also leaves out
    queries whose token did not occur before.
    """
    T = ids.shape[1]
    rows = weights[:, :, 1:]  # [B, H, T - 1, T]
    positions = torch.arange(T, device=ids.device, dtype=weights.dtype)
    equal = (ids[:, 1:, None] == ids[:, None, :]).tril()  # of query t + 1 and a key up to t, so never itself
    sums = torch.stack(
        (
            torch.special.entr(rows).sum(-1),
            positions[1:] - rows @ positions,
            rows[..., 0],
            rows.diagonal(0, 2, 3),
            rows.diagonal(1, 2, 3),
            (rows * equal[:, None]).sum(-1),
        )
    )  # [6, B, H, T - 1]
    every = float(ids.shape[0] * (T - 1))
    counts = torch.tensor([every] * 5 + [float(equal.any(-1).sum())], dtype=torch.float64)
    return sums.to(float64_device(sums.device)).sum((1, 3), dtype=torch.float64).cpu(), counts


@torch.no_grad()
def take_snapshot(
    model: GPT,
    tokenizer: Tokenizer,
    ids: Sequence[int],
    *,
    prompt: str,
    step: int,
    loss: float,
    repeats: int | None = None,
) -> Snapshot:
    """Compute the attention weights of a model on the `ids` of `prompt`, and the scores of all heads, without dropout.

    `repeats` is as in `induction_scores`. Raises CheckpointError for weights that are not finite.
    """
    batch = torch.tensor([list(ids)], device=model.token_embedding.weight.device)
    weights = model.attention_weights(batch)  # [L, 1, H, T, T]
    require_finite(weights, "attention weights", model.where)
    sums, counts = zip(*(pattern_sums(of_layer, batch) for of_layer in weights), strict=True)
    induction = induction_scores(model, end_of_text=tokenizer.end_of_text, repeats=repeats)
    scores = as_scores(torch.stack(sums), counts[0], induction)
    tokens = tuple(tokenizer.token_text(token) for token in ids)
    return Snapshot(step, loss, prompt, tuple(ids), tokens, weights[:, 0].cpu().numpy(), scores)


@torch.no_grad()
def score_heads(
    model: GPT,
    ids: Ids,
    windows: Sequence[tuple[int, int]],
    *,
    end_of_text: int,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    watch: Callable[[int, Stages, np.ndarray], object] = lambda *_: None,
    count: Callable[[int], object] = lambda _: None,
) -> HeadScores:
    """Score `heads` of `layers` (None: all) on the windows ids[start:end]; induction is scored on random tokens.

    For each batch of windows and each layer, `watch` receives the layer's index in `layers`, the layer's attention
    tensors, and the starts of the windows. `count` receives the number of tokens read since its last call, first of
    the windows, then of the random sequences, which never contain the id `end_of_text`.
    """
    layers = range(len(model.blocks)) if layers is None else layers
    heads = range(model.config.num_heads) if heads is None else heads
    sums = torch.zeros(len(layers), len(PATTERNS), len(heads), dtype=torch.float64)
    counts = torch.zeros(len(PATTERNS), dtype=torch.float64)
    count(0)  # starts the progress bar, because the first layer may take a while
    for starts, _, batch in window_batches(model, ids, windows):
        of_batch = torch.zeros_like(counts)
        for row, stages in enumerate(model.attention_stages(batch, layers, heads)):
            layer_sums, of_batch = pattern_sums(stages.weights, batch)
            sums[row] += layer_sums
            watch(row, stages, starts)
            count(_share(batch, row, len(layers)))
        counts += of_batch
    induction = induction_scores(model, end_of_text=end_of_text, layers=layers, heads=heads, count=count)
    return as_scores(sums, counts, induction)


def window_batches(
    model: GPT, ids: Ids, windows: Sequence[tuple[int, int]], batch_size: int | None = None, num_targets: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray, Tensor]]:
    """Yield batches of windows (start, end) of equal length T: their starts [B], indices [B] in `windows`, and ids.

    The ids [B, T + num_targets] include the `num_targets` ids after each window, which the model is to predict. B is at
    most `batch_size`, or, if `batch_size` is None, the number that `sequences_at_once` returns for the longest window.
    """
    starts, ends = np.array(windows).T
    lengths = ends - starts
    for numbers in in_batches(lengths, batch_size or sequences_at_once(model.config.num_heads, int(lengths.max()))):
        tokens = token_windows(ids, starts[numbers], int(lengths[numbers[0]]) + num_targets).astype(np.int64)
        yield starts[numbers], numbers, to_device(torch.from_numpy(tokens), model.token_embedding.weight.device)


def as_scores(sums: Tensor, counts: Tensor, induction: np.ndarray) -> HeadScores:
    """Make HeadScores of sums [layers, 6, heads] / counts [6] (`pattern_sums`), and `induction` [layers, heads]."""
    means = (sums / counts[:, None]).numpy()  # 0 / 0 is NaN
    return dict(zip(COLUMNS, [*means.swapaxes(0, 1), induction], strict=True))


def sequences_at_once(num_heads: int, num_tokens: int) -> int:
    """Return the batch size for which a layer has at most WEIGHTS_AT_ONCE attention weights in all; at least 1."""
    return max(1, WEIGHTS_AT_ONCE // max(1, num_heads * num_tokens**2))


def repeated_length(model: GPT) -> int:
    """Return the length 2 n of the sequences on which induction is measured: n random tokens, then a copy of them.

    2 n is at most context_length and HEADS_WINDOW. n is less than vocab_size, and at most the shortest attention
    window, so that every head can attend from a copy to the token after the original.
    """
    sizes = model.config
    most = min(sizes.context_length, HEADS_WINDOW, *(2 * window for window in sizes.windows if window is not None))
    return 2 * min(most // 2, model.vocab_size - 1)


def num_repeats(model: GPT) -> int:
    """Return the number of sequences on which induction is measured: NUM_REPEATS, or fewer for a large model."""
    length = max(1, repeated_length(model))
    costs = estimate(model.config.changed(context_length=length), model.vocab_size, micro_batch_size=1, dtype="float32")
    return max(1, min(NUM_REPEATS, MOST_OPERATIONS // (length * costs.forward_flops_per_token)))


def repeated_tokens(vocab_size: int, num_tokens: int, end_of_text: int, count: int = NUM_REPEATS) -> Tensor:
    """Return ids [count, 2 n], the same in each call: each row is n different random tokens, then a copy of them.

    n is half of num_tokens, and must be less than vocab_size. `end_of_text` never occurs.
    """
    others, n = np.delete(np.arange(vocab_size), end_of_text), num_tokens // 2
    keys = [stream_key(0, "induction", number) for number in range(count)]
    first = np.stack([others[permutation(key, len(others))[:n]] for key in keys])
    return torch.from_numpy(np.concatenate((first, first), axis=1))


def _share(ids: Tensor, row: int, num_rows: int) -> int:
    """Return how many of a batch's tokens count as done after layer `row`; over `num_rows` layers, all are counted."""
    return ids.numel() * (row + 1) // num_rows - ids.numel() * row // num_rows


def induction_of(weights: Tensor) -> Tensor:
    """Compute each head's mean weight from a repeated token to the token after its first occurrence: float64 [H].

    In weights [B, H, 2 n, 2 n], tokens n..2n-1 repeat tokens 0..n-1. Olsson et al. 2022, "prefix matching".
    """
    n = weights.shape[-1] // 2
    copied = weights[:, :, n:, 1 : n + 1].diagonal(0, 2, 3)
    return copied.to(float64_device(copied.device)).mean((0, 2), dtype=torch.float64)


@torch.no_grad()
def induction_scores(
    model: GPT,
    *,
    end_of_text: int,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    repeats: int | None = None,
    count: Callable[[int], object] = lambda _: None,
) -> np.ndarray:
    """Compute the induction scores of `heads` of `layers` (None: all) on repeated random tokens: [layers, heads].

    All scores are NaN if `repeated_length` is below 4. `repeats` is the number of sequences (None: `num_repeats`), in
    which the id `end_of_text` never occurs. `count` receives the number of tokens read since its last call.
    """
    layers = range(len(model.blocks)) if layers is None else layers
    heads = range(model.config.num_heads) if heads is None else heads
    ids = repeated_tokens(model.vocab_size, repeated_length(model), end_of_text, repeats or num_repeats(model))
    if ids.shape[1] < 4:
        return np.full((len(layers), len(heads)), np.nan)
    sums = torch.zeros(len(layers), len(heads), dtype=torch.float64)
    device, at_once = model.token_embedding.weight.device, sequences_at_once(model.config.num_heads, ids.shape[1])
    for batch in to_device(ids, device).split(at_once):
        for row, stages in enumerate(model.attention_stages(batch, layers, heads)):
            sums[row] += len(batch) * induction_of(stages.weights).cpu()
            count(_share(batch, row, len(layers)))
    return (sums / len(ids)).numpy()
