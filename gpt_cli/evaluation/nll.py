"""Negative log-likelihood of a text under a model, per token and on average."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gpt_cli.common.machine.devices import autocast, to_device
from gpt_cli.config.model import WEIGHTS_AT_ONCE
from gpt_cli.model import GPT
from gpt_cli.model.gpt import require_finite
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.sft_examples import Examples
from gpt_cli.text.token_files import Ids, chunks, token_windows
from gpt_cli.text.tokenizers import Tokenizer

LOGITS_AT_ONCE = 2**26  # 256 MB in float32
SUMMED_AT_ONCE = 2**16


@dataclass(frozen=True)
class Score:
    """Mean loss over the predicted tokens of a text, in nats per token and bits per byte; a huge perplexity is None."""

    num_tokens: int
    loss: float
    perplexity: float | None  # None where it is too large for a float
    bits_per_byte: float


def surprisals(
    model: GPT,
    ids: Ids,
    *,
    stride: int,
    dtype: str = "float32",
    batch_size: int | None = None,
    count: Callable[[int], object] = lambda _: None,
) -> Iterator[np.ndarray]:
    """Yield the negative log-likelihood of each token but the first, in nats: ids [N] -> float64 arrays, N - 1 numbers.

    Windows of C = `evaluation_window` tokens advance by `stride` (1 to C). Each window scores the tokens that no
    earlier window scored. So a token is predicted from C - stride + 1 or more tokens, except near the beginning of the
    text. Evaluations during training use a stride of C. `count` receives the number of tokens scored since its last
    call. A batch has `batch_size` windows; None means `windows_at_once`.
    """
    C, device = model.config.evaluation_window, model.token_embedding.weight.device
    assert 1 <= stride <= C
    starts = np.arange(count_windows(model, len(ids), stride)) * stride
    lengths = np.minimum(C, len(ids) - 1 - starts)
    # only the last window may be shorter than the others, so the batches keep the order of the text
    for numbers in in_batches(lengths, batch_size or windows_at_once(model, len(starts))):
        tokens = token_windows(ids, starts[numbers], int(lengths[numbers[0]]) + 1).astype(np.int64)
        batch = to_device(torch.from_numpy(tokens), device)
        with torch.inference_mode(), autocast(device, dtype):
            nats = token_nll(model, model.last_residual(batch[:, :-1]), batch[:, 1:])
        rows = zip(starts[numbers], nats.cpu().double().numpy(), strict=True)
        scored = np.concatenate([row[0 if start == 0 else C - stride :] for start, row in rows])
        count(len(scored))
        yield scored


def token_nll(model: GPT, x: Tensor, targets: Tensor) -> Tensor:
    """Return the negative log-likelihood of each target, in nats, from the last residual stream: [B, T, D] -> [B, T].

    At most LOGITS_AT_ONCE logits are in memory at a time, but at least the logits of one position of each sequence.
    """
    return torch.cat([nll_of(logits, wanted) for logits, wanted in logits_in_slices(model, x, targets)], dim=1)


def logits_in_slices(model: GPT, x: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield logits [B, t, V], in float32 at least, and targets [B, t] of consecutive slices of streams x [B, T, D]."""
    at_once = max(1, LOGITS_AT_ONCE // (len(x) * model.vocab_size))
    for some, wanted in zip(x.split(at_once, dim=1), targets.split(at_once, dim=1), strict=True):
        logits = model.logits(some)
        yield logits if logits.dtype == torch.float64 else logits.float(), wanted


def nll_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the negative log-likelihood of each target, in nats: logits [..., V], targets [...] -> [...]."""
    return -logits.log_softmax(dim=-1).gather(-1, targets[..., None])[..., 0]


def log_probabilities(model: GPT, x: Tensor) -> Tensor:
    """Apply final norm, output layer and log-softmax to residual streams: [..., D] -> log-probabilities [..., V].

    Raises CheckpointError for logits that are not finite.
    """
    logits = model.logits(x)
    require_finite(logits, "logits", model.where)
    return logits.log_softmax(dim=-1)


def count_windows(model: GPT, num_ids: int, stride: int) -> int:
    """Return the number of windows in which `surprisals` reads `num_ids` ids."""
    return 1 + max(0, -(-(num_ids - 1 - model.config.evaluation_window) // stride))


def windows_at_once(model: GPT, num_windows: int, dtype: str = "float32", free: int | None = None) -> int:
    """Return the batch size with which `surprisals` reads `num_windows` windows: 1 to 16, fewer for long windows.

    While a batch needs more than `free` bytes of memory (None: no limit), the size is halved, but not below 1.
    """
    C, V, H = model.config.evaluation_window, model.vocab_size, model.config.num_heads
    fitting = max(1, min(16, num_windows, LOGITS_AT_ONCE // (V * C), WEIGHTS_AT_ONCE // (H * C**2)))
    while fitting > 1 and free is not None and scoring_bytes(model, fitting, C, dtype) > free:
        fitting //= 2
    return fitting


def scoring_bytes(model: GPT, num_windows: int, length: int, dtype: str = "float32") -> int:
    """Estimate the bytes of memory that `surprisals` needs, besides the model, for a batch of `num_windows` windows.

    A window has `length` tokens. In bfloat16, the estimate includes copies of the weights.
    """
    sizes, V, size = model.config, model.vocab_size, 2 if dtype == "bfloat16" else 4
    copies = size * sum(parameter.numel() for parameter in model.parameters()) if size < 4 else 0
    # scores and weights of a block and memory of softmax, the residual stream and tensors computed from it
    per_token = 3 * sizes.num_heads * size * length + 4 * (8 * sizes.d_model + 2 * sizes.hidden_size)
    logits = 4 * 4 * min(num_windows * length * V, max(LOGITS_AT_ONCE, num_windows * V))
    return copies + num_windows * length * per_token + logits


def in_batches(lengths: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Group windows of equal length into batches, longest first: lengths [N] -> window indices of each batch [B]."""
    batches = []
    for length in np.unique(lengths)[::-1]:
        numbers = np.flatnonzero(lengths == length)
        batches += [numbers[i : i + batch_size] for i in range(0, len(numbers), batch_size)]
    return batches


def byte_lengths(tokenizer: Tokenizer) -> np.ndarray:
    """Return the number of bytes of each token's text: int64 [V]; 0 for end-of-text, `starts_with` and unused ids."""
    lengths = [len(token) for token in tokenizer.token_bytes]
    return np.array(lengths + [0] * (tokenizer.vocab_size - len(lengths)))


def byte_lengths_on(text: Corpus, ids: Ids, tokenizer: Tokenizer) -> np.ndarray:
    """Return bytes, perhaps fractions, of each vocabulary token, [V]; the sum over `ids` is the size of `text`."""
    return byte_lengths(tokenizer) * byte_scale(text, ids, tokenizer)


def byte_scale(text: Corpus, ids: Ids | Examples, tokenizer: Tokenizer) -> float:
    """Return the size of `text` divided by the bytes of its tokens `ids`; 1 for conversations.

    Only a Hugging Face tokenizer may change the text (lowercase, [UNK]), so for others it is 1, and `text` is not read.
    """
    if isinstance(ids, Examples) or tokenizer.kind != "imported":
        return 1
    return sum(len(block.content) for block in text.blocks()) / max(1, _total(byte_lengths(tokenizer), ids))


def _total(lengths: np.ndarray, ids: Ids) -> int:
    return round(sum(lengths[chunk].sum().item() for chunk in chunks(ids)))


def score_of(nats: float, num_tokens: int, num_bytes: float) -> Score:
    """Compute a Score from the sum of surprisals in nats and the numbers of predicted tokens and of their bytes."""
    loss = nats / num_tokens
    return Score(num_tokens, loss, math.exp(loss) if loss < 700 else None, nats / math.log(2) / max(1, num_bytes))


@dataclass(eq=False)
class Observations:
    """Total nats [N] and amounts [N] (numbers of tokens or bytes) of N parts of a text, such as windows or answers."""

    nats: np.ndarray = field(default_factory=lambda: np.empty(0))
    amounts: np.ndarray = field(default_factory=lambda: np.empty(0))

    def standard_error(self) -> float | None:
        """Return the standard error of the nats per token or byte; None for fewer than two parts."""
        return standard_error(self.nats, self.amounts)

    def error_of_difference(self, other: Observations) -> float | None:
        """Return the standard error of the difference of two losses per token or byte; None for fewer than two parts.

        `self` and `other` must have the same parts. A part that is hard for one model is hard for the other, so the
        error of the difference is far below that of either loss.
        """
        N = len(self.nats)
        assert len(other.nats) == N
        if N < 2:
            return None
        one, two = (_deviations(part.nats, part.amounts) / part.amounts.sum() for part in (self, other))
        return float(np.sqrt(N / (N - 1) * ((one - two) ** 2).sum()))


class Stretches(Observations):
    """Total nats of consecutive pieces (stretches) of a text: of `size` tokens or, with `byte_lengths` [V], bytes each.

    The first token of the text has no surprisal, but its bytes, if bytes are counted, begin the first stretch.
    """

    def __init__(self, size: int, ids: Ids, byte_lengths: np.ndarray | None = None):
        self._size, self._lengths = size, byte_lengths
        total = len(ids) - 1 if byte_lengths is None else _total(byte_lengths, ids)
        self._end = 0 if byte_lengths is None else byte_lengths[ids[:1]].sum().item()
        N = max(1, -(-total // size))
        super().__init__(np.zeros(N), np.zeros(N))

    def add(self, nats: np.ndarray, ids: np.ndarray) -> None:
        """Add the surprisals of the next tokens, nats [T] and ids [T], to the stretches in which the tokens begin."""
        amounts = np.ones(len(ids), int) if self._lengths is None else self._lengths[ids]
        ends = self._end + np.cumsum(amounts)
        # end-of-text may begin at the end
        places = np.minimum((ends - amounts) // self._size, len(self.nats) - 1).astype(int)
        np.add.at(self.nats, places, nats)
        np.add.at(self.amounts, places, amounts)
        self._end = ends[-1].item()


def in_stretches(parts: Iterable[np.ndarray], ids: Ids, stretches: Sequence[Stretches]) -> Iterator[np.ndarray]:
    """Add the surprisals in `parts`, of ids[1:] in order, to all `stretches`; yield each array of `parts` unchanged."""
    end = 1
    for nats in parts:
        for one in stretches:
            one.add(nats, ids[end : end + len(nats)])
        end += len(nats)
        yield nats


def standard_error(nats: np.ndarray, num_tokens: np.ndarray) -> float | None:
    """Return the standard error of the loss R = sum(nats) / sum(num_tokens) over windows: nats [N], num_tokens [N].

    A window counts as one observation, because the losses of its tokens vary together. With e = nats - R * num_tokens,
    the standard error is sqrt(N / (N - 1) * sum(e^2)) / sum(num_tokens) (Cochran 1977, Sampling Techniques, section
    2.11, without its finite population correction). Returns None for fewer than two windows.
    """
    N = len(nats)
    if N < 2:
        return None
    return float(np.sqrt(N / (N - 1) * (_deviations(nats, num_tokens) ** 2).sum()) / num_tokens.sum())


def _deviations(nats: np.ndarray, num_tokens: np.ndarray) -> np.ndarray:
    """Return each window's nats minus its number of tokens times the mean loss: [N], the e in `standard_error`."""
    return nats - nats.sum() / num_tokens.sum() * num_tokens


def score(nats: Iterable[np.ndarray], ids: Ids, byte_lengths: np.ndarray, where: str = "checkpoint") -> Score:
    """Compute the Score of ids [N] from the arrays `nats` that `surprisals` yields; `byte_lengths` [V] is in bytes.

    Holds one array in memory at a time. Raises CheckpointError, naming `where`, if a surprisal is not finite.
    """
    num_bytes = _total(byte_lengths, ids) - round(byte_lengths[ids[:1]].sum().item())
    return score_of(_sum(iter(nats), len(ids) - 1, where), len(ids) - 1, num_bytes)


def _sum(arrays: Iterator[np.ndarray], count: int, where: str) -> float:
    """Sum `count` finite numbers of consecutive arrays, bit-identical to numpy's pairwise sum of one joined array."""
    left = np.empty(0)

    def sum_of(count: int) -> float:
        nonlocal left
        if count > SUMMED_AT_ONCE:
            half = count // 2 - count // 2 % 8
            return sum_of(half) + sum_of(count - half)
        while len(left) < count:
            more = next(arrays)
            require_finite(torch.from_numpy(more), "surprisals", where)
            left = np.concatenate((left, more))
        numbers, left = left[:count], left[count:]
        return float(numbers.sum())

    return sum_of(count)
