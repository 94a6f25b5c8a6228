"""Differences between two models: in predictions, in the attention and outputs of heads, and in weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gpt_cli.attention_maps.activations import walk
from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.attention_maps.logit_attribution import head_results
from gpt_cli.evaluation.nll import LOGITS_AT_ONCE, standard_error
from gpt_cli.model import GPT
from gpt_cli.model.gpt import require_finite
from gpt_cli.tools.interpret.lens.tuned_lens import divergence

PASSAGE = 16  # tokens
_PARTS = {"attention": "attention", "feed_forward": "feed-forward"}  # of a block; all else are its norms


@dataclass(frozen=True)
class Window:
    """Comparison of two models on N tokens: surprisals of both, and KL(first || second) of their predictions, in nats.

    `attention` is half the sum of |a - b| over all attention rows of a head in both models, None unless they have the
    same heads. `write_squares` are the sums of squares of b - a and of a, where a and b are what a head adds to the
    residual stream of the first and the second model, None unless d_model is equal too.
    """

    nats: np.ndarray  # [2, N]
    divergence: np.ndarray  # [N]: sum p log (p / q) over the vocabulary, p of the first
    num_rows: int  # tokens that look
    attention: np.ndarray | None = None  # [L, H]
    write_squares: np.ndarray | None = None  # [2, L, H]


@torch.no_grad()
def compare_window(models: Sequence[GPT], ids: Tensor, following: Tensor, wheres: Sequence[str]) -> Window:
    """Compare models on `ids` [T] and next ids `following` [N]; CheckpointError, at `wheres`, for non-finite logits."""
    first, second = models
    heads = have_same_heads(first, second)
    writes = heads and first.config.d_model == second.config.d_model
    streams, attention, of_heads = list[Tensor](), list[Tensor](), list[Tensor]()
    if heads:
        for a, b in zip(*(walk(model, *model.embed(ids[None])) for model in models), strict=True):
            attention.append((a.weights - b.weights).abs().sum(dim=(0, 2, 3)) / 2)
            if writes:
                before, after = (head_results(each.block, each.heads, range(first.config.num_heads)) for each in (a, b))
                of_heads.append(torch.stack([part.square().sum(dim=(1, 2, 3)) for part in (after - before, before)]))
            streams = [a.resid_post, b.resid_post]
    else:
        streams = [model.last_residual(ids[None]) for model in models]
    at_once, N = max(1, LOGITS_AT_ONCE // first.vocab_size), len(following)
    parts = list[tuple[Tensor, Tensor]]()
    for start in range(0, N, at_once):
        rows = slice(start, min(start + at_once, N))
        log_probs = list[Tensor]()
        for model, stream, where in zip(models, streams, wheres, strict=True):
            logits = model.logits(stream[0, rows])
            require_finite(logits, "logits", where)
            log_probs.append(logits.log_softmax(dim=-1))
        nats = torch.stack([-each.gather(-1, following[rows, None])[:, 0] for each in log_probs])
        parts.append((nats, divergence(log_probs[1], log_probs[0]).clamp(min=0)))
    return Window(
        nats=torch.cat([nats for nats, _ in parts], dim=1).double().cpu().numpy(),
        divergence=torch.cat([apart for _, apart in parts]).double().cpu().numpy(),
        num_rows=len(ids),
        attention=torch.stack(attention).double().cpu().numpy() if heads else None,
        write_squares=torch.stack(of_heads, dim=1).double().cpu().numpy() if writes else None,
    )


def have_same_heads(first: GPT, second: GPT) -> bool:
    """Return whether two models have the same number of blocks, and the same number of heads in each."""
    return all(getattr(first.config, key) == getattr(second.config, key) for key in ("num_blocks", "num_heads"))


def head_changes(windows: Sequence[Window]) -> list[Row]:
    """Return a row for each head on how much it differs between two models, the most different head first.

    `attention_change` is the mean total variation distance of a head's attention rows, 0 to 1; `write_change` is
    ||b - a|| / ||a|| of its outputs, None where a is zero or d_model differs. Standard errors are None for one window.
    """
    if not windows or windows[0].attention is None:
        return []
    sizes = np.array([each.num_rows for each in windows], dtype=float)
    rows = []
    for layer, head in np.ndindex(windows[0].attention.shape):
        apart = np.array([each.attention[layer, head] for each in windows if each.attention is not None])
        row: Row = {"layer": layer, "head": head, "attention_change": float(apart.sum() / sizes.sum())}
        row |= {
            "attention_change_error": standard_error(apart, sizes),
            "write_change": None,
            "write_change_error": None,
        }
        squares = np.array([each.write_squares[:, layer, head] for each in windows if each.write_squares is not None])
        if len(squares) and squares[:, 1].sum():
            row["write_change"] = change = float(np.sqrt(squares[:, 0].sum() / squares[:, 1].sum()))
            # the error of a square root, from that of what is below it
            error = standard_error(squares[:, 0], squares[:, 1])
            row["write_change_error"] = error / (2 * change) if error and change else error
        rows.append(row)
    return sorted(rows, key=lambda row: -row["attention_change"])


def weight_changes(first: GPT, second: GPT) -> list[Row]:
    """Return a row with ||b - a|| / ||a|| for each part of the weights that has the same shapes in both models.

    `change` is None where a is zero and b is not; `layer` is None for embeddings and output, which are not in a block.
    """
    theirs = dict(second.named_parameters())
    parts: dict[tuple[int | None, str], list[tuple[Tensor, Tensor | None]]] = {}
    for name, parameter in first.named_parameters():
        parts.setdefault(_part_of(name), []).append((parameter.detach(), theirs.pop(name, None)))
    more = {_part_of(name) for name in theirs}  # parts of which the second has more
    rows = list[Row]()
    for (layer, part), pairs in parts.items():
        equal = [(a.double(), b.detach().double()) for a, b in pairs if b is not None and a.shape == b.shape]
        if len(equal) < len(pairs) or (layer, part) in more:
            continue
        apart = sum(float((b - a).square().sum()) for a, b in equal)
        size = sum(float(a.square().sum()) for a, _ in equal)
        change = float(np.sqrt(apart / size)) if size else None if apart else 0.0
        rows.append({"layer": layer, "part": part, "change": change, "parameters": sum(a.numel() for a, _ in equal)})
    return rows


def _part_of(name: str) -> tuple[int | None, str]:
    """Return the layer (None outside of blocks) and the part of a model to which a parameter belongs."""
    if not name.startswith("blocks."):
        return None, name.partition(".")[0].replace("_", " ")
    _, layer, module, *_ = name.split(".")
    return int(layer), _PARTS.get(module, "norms")


def most_apart(divergences: Sequence[np.ndarray], number: int, length: int = PASSAGE) -> list[tuple[int, int, int]]:
    """Return up to `number` passages with the largest mean divergence, each as (window, start, end).

    Passages do not overlap; each has `length` tokens, or all tokens of a shorter window. Passages without divergence
    are left out.
    """
    spans = list[tuple[float, int, int, int]]()
    for window, apart in enumerate(divergences):
        size = min(length, len(apart))
        sums = np.convolve(apart, np.ones(size), "valid") if size else np.empty(0)
        spans += [(-total / size, window, start, start + size) for start, total in enumerate(sums.tolist()) if total]
    chosen = list[tuple[int, int, int]]()
    for _, window, start, end in sorted(spans):
        if len(chosen) == number:
            break
        if all(window != other or end <= a or b <= start for other, a, b in chosen):
            chosen.append((window, start, end))
    return chosen
