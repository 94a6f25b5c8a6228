"""Max-activating passages: where in a text each head adds most, by norm, to the residual stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gpt_cli.attention_maps.activations import head_columns
from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.common.machine.devices import to_device
from gpt_cli.model import GPT
from gpt_cli.model.attention import Stages
from gpt_cli.model.gpt import require_finite
from gpt_cli.text.token_files import Ids
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.tools.interpret.figure import Figure

BEFORE, AFTER = 16, 8  # tokens of a passage around its peak
LOOKS = 3  # tokens that a head attends to most
_PART = 3  # tokens before and after, in which a character of four bytes may begin or end


@dataclass(frozen=True)
class Passage:
    """Tokens `start` to `end` - 1 of a text, around the token `peak` at which a head's output norm is largest.

    `value` is the output norm at the peak, `sizes` are the norms at tokens `start` to `end` - 1. `looks_at` has the
    tokens that the peak attends to most, as (index in the text, weight), the largest weight first.
    """

    peak: int
    value: float
    start: int
    end: int
    sizes: np.ndarray
    looks_at: tuple[tuple[int, float], ...]


class Passages:
    """Collector of the `most` passages of each head with the largest output norms; a head's passages do not overlap.

    `add` searches windows for passages; `top` [layers][heads] has lists of the best so far. A window's first token,
    which attends to itself alone, is never a peak. `values` [layers][heads][passages] are this model's output norms at
    the peaks of `others`, passages of another checkpoint. NaN or inf raises CheckpointError.
    """

    def __init__(
        self, model: GPT, layers: Sequence[int], heads: Sequence[int], most: int, others: Passages | None = None
    ):
        self.most, self._where, self._places = most, model.where, {"layer": layers, "head": heads}
        self.top: list[list[list[Passage]]] = [[[] for _ in heads] for _ in layers]
        self._others = others.top if others else [[[] for _ in heads] for _ in layers]
        self.values = [[[0.0] * len(of_head) for of_head in of_layer] for of_layer in self._others]
        self._sums, self._num_tokens = np.zeros((len(layers), len(heads))), np.zeros((len(layers), 1))
        self._roots = [written_root(model, layer, heads) for layer in layers]

    def add(self, row: int, stages: Stages, starts: np.ndarray) -> None:
        """Search a batch of windows for the passages with the largest output norms of the heads in `layers[row]`.

        `stages` has the layer's attention tensors on the windows; `starts` [B] are the indices where windows start.
        """
        # the norm of P h, which a head adds: that of R h is the same, and no vector of D numbers is made for each head
        sizes = torch.einsum("hjk,bhtk->bhtj", self._roots[row], stages.heads).norm(dim=-1)  # [B, heads, T]
        require_finite(sizes, "outputs of heads", self._where)
        norms = sizes.cpu().numpy()
        self._sums[row] += norms[..., 1:].sum((0, 2), dtype=np.float64)
        self._num_tokens[row] += norms[:, 0, 1:].size
        for head, of_head in enumerate(self._others[row]):
            for number, other in enumerate(of_head):
                for window in np.flatnonzero((starts <= other.peak) & (other.peak < starts + norms.shape[-1])):
                    self.values[row][head][number] = float(norms[window, head, other.peak - starts[window]])
        free = norms.copy()
        free[..., 0] = -1
        chosen = list[tuple[int, int, int]]()  # window, head, place in the window
        for _ in range(self.most):
            peaks = free.argmax(axis=-1)  # the first of equal ones
            for window, head in np.ndindex(*peaks.shape):
                peak = int(peaks[window, head])
                size = free[window, head, peak]
                top = self.top[row][head]
                if size > 0 and (len(top) < self.most or size >= top[-1].value):
                    chosen.append((window, head, peak))
                    free[window, head, max(0, peak - BEFORE - AFTER) : peak + BEFORE + AFTER + 1] = -1
        if not chosen:
            return
        places = to_device(torch.tensor(chosen).T.contiguous(), stages.weights.device)
        weights = stages.weights[tuple(places)].cpu().numpy()  # [peaks, T]
        for (window, head, peak), looks in zip(chosen, weights, strict=True):
            begin, start, end = int(starts[window]), max(0, peak - BEFORE), min(norms.shape[-1], peak + AFTER + 1)
            keys = np.argsort(-looks, kind="stable")[: min(LOOKS, peak + 1)]
            looks_at = tuple((begin + key, float(looks[key])) for key in keys.tolist() if looks[key] > 0)
            around = norms[window, head, start:end].copy()
            value = float(norms[window, head, peak])
            self.top[row][head].append(Passage(begin + peak, value, begin + start, begin + end, around, looks_at))
        for of_head in self.top[row]:
            of_head.sort(key=lambda passage: (-passage.value, passage.peak))
            del of_head[self.most :]

    def mean_sizes(self) -> Figure:
        """Average each head's output norm over all tokens but each window's first: [layer, head], NaN if none."""
        unknown = np.full_like(self._sums, np.nan)
        means = np.divide(self._sums, self._num_tokens, unknown, where=self._num_tokens > 0)
        return Figure("mean_size", self._places, means)

    def rows(self, ids: Ids, tokenizer: Tokenizer) -> list[Row]:
        """Return a row for each head: its passages with their tokens, the largest norm first."""
        return [
            {"passages": [_row(passage, ids, tokenizer, passages[0].value) for passage in passages]}
            for of_layer in self.top
            for passages in of_layer
        ]


@torch.no_grad()
def written_root(model: GPT, layer: int, heads: Sequence[int]) -> Tensor:
    """Return R [heads, min(K, D), K] with ||R h|| = ||P h||, where a head with output h [K] adds P h to the stream."""
    columns = head_columns(model.blocks[layer])[list(heads)]
    return torch.linalg.qr(columns.cpu(), mode="r").R.to(columns.device)  # not every device has a QR decomposition


def _row(passage: Passage, ids: Ids, tokenizer: Tokenizer, largest: float) -> Row:
    def text(start: int, end: int) -> list[str]:
        first = max(0, start - _PART)
        return whole_characters(tokenizer, ids[first : end + _PART].tolist())[start - first : end - first]

    shades = np.minimum(1.0, passage.sizes / largest) if largest else passage.sizes
    return {
        "place": passage.start,
        "value": passage.value,
        "peak": passage.peak - passage.start,
        "tokens": text(passage.start, passage.end),
        "shades": [round(float(shade), 4) for shade in shades],
        "looks_at": [
            {"token": text(key, key + 1)[0], "index": key - passage.start, "weight": weight}
            for key, weight in passage.looks_at
        ],
    }


def whole_characters(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return the text of each token; a character that spans several tokens is only in the text of the first one."""
    named = {tokenizer.end_of_text, *tokenizer.starts_with}
    parts = [tokenizer.token_text(one).encode() if one in named else tokenizer.token_bytes[one] for one in ids]
    owners = [number for number, part in enumerate(parts) for _ in part]
    texts, at = [""] * len(parts), 0
    for character in b"".join(parts).decode("utf-8", "surrogateescape"):
        half = "\udc80" <= character <= "\udcff"
        texts[owners[at]] += "\ufffd" if half else "<0x00>" if character == "\0" else character
        at += 1 if half else len(character.encode())
    return texts
