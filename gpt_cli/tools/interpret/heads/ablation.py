"""Ablation of heads (`gpt heads --ablate`): how much the loss rises without each head, or without each layer."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from gpt_cli.attention_maps.activations import Activations, head_results, walk
from gpt_cli.attention_maps.head_metrics import LOSS_CHANGE
from gpt_cli.attention_maps.head_scores import window_batches
from gpt_cli.common.machine.devices import autocast, float64_device, tokens_at_once
from gpt_cli.evaluation.nll import LOGITS_AT_ONCE, standard_error, token_nll
from gpt_cli.model import GPT
from gpt_cli.model.gpt import require_finite
from gpt_cli.text.token_files import Ids
from gpt_cli.tools.interpret.figure import Figure


@torch.no_grad()
def ablate(
    model: GPT,
    ids: Ids,
    windows: Sequence[tuple[int, int]],
    *,
    how: str,
    layers: Sequence[int],
    heads: Sequence[int],
    dtype: str = "float32",
    count: Callable[[int], object] = lambda _: None,
) -> tuple[Figure, Figure]:
    """Return how the loss changes when one head, or one layer, of `layers` and `heads` is removed, and the loss itself.

    `how` "zero" removes what a head adds to the residual stream, "mean" replaces a head's output by its mean over the
    windows, and "layer" skips a whole block. A window (start, end) reads ids start to end - 1 and predicts start + 1 to
    end. Memory does not grow with the number of heads. `count` receives the number of tokens done since its last call;
    each of `num_models` models reads every token once. Errors of the change are NaN for a single window. Raises
    CheckpointError if losses are not finite.
    """
    assert not model.training
    device = model.token_embedding.weight.device
    lengths, num_variants = np.array([end - start for start, end in windows]), 1 if how == "layer" else len(heads)
    most = min(tokens_at_once(device, 2**11), LOGITS_AT_ONCE // model.vocab_size)
    at_once = max(1, most // int(lengths.max()))  # a sequence counts once for each head that is ablated in it
    nats = np.zeros((num_models(how, layers, heads), len(windows)))  # the last row is the whole model's
    with autocast(device, dtype):
        means = None
        if how == "mean":
            means = _mean_outputs(model, (tokens for *_, tokens in window_batches(model, ids, windows, at_once, 1)))
        for _, numbers, tokens in window_batches(model, ids, windows, max(1, at_once // num_variants), 1):
            parts, lost = [], None if how == "layer" else heads
            for part in _without(model, tokens, layers, lost, means, max(1, at_once // len(tokens))):
                parts.append(part.cpu().numpy())
                count(len(part) * int(lengths[numbers].sum()))
            nats[:, numbers] = np.concatenate(parts)
    require_finite(torch.from_numpy(nats), "losses", model.where)
    rises, num_tokens = nats[:-1] - nats[-1], lengths.sum()
    errors = np.array([standard_error(rise, lengths) for rise in rises], float)  # None is NaN
    places = {"layer": layers} if how == "layer" else {"layer": layers, "head": heads}
    shape, changes = [len(labels) for labels in places.values()], rises.sum(1) / num_tokens
    change = Figure(LOSS_CHANGE, places, changes.reshape(shape), errors.reshape(shape), unit="nats", scale="change")
    return change, Figure("loss", {}, np.array(nats[-1].sum() / num_tokens), unit="nats/token")


def num_models(how: str, layers: Sequence[int], heads: Sequence[int]) -> int:
    """Return how many models `ablate` measures: the full model, and one without each head (or layer, by `how`)."""
    return len(layers) * (1 if how == "layer" else len(heads)) + 1


def _without(
    model: GPT, tokens: Tensor, layers: Sequence[int], heads: Sequence[int] | None, means: Tensor | None, at_once: int
) -> Iterator[Tensor]:
    """Yield summed losses, float64 [n, B], of windows [B, T + 1]: without each of n heads; then of the full model.

    Removed heads output `means` [L, H, K] (None: 0); n is at most `at_once`. If `heads` is None, skip layers instead.
    """
    targets = tokens[:, 1:]
    x, rotation = model.embed(tokens[:, :-1])
    for layer, made in enumerate(walk(model, x, rotation)):
        if layer in layers and heads is None:
            yield _nats(model, made.resid_pre[None], rotation, layer + 1, targets)
        elif layer in layers and heads:
            outputs = made.heads if means is None else made.heads - means[layer][:, None]
            for first in range(0, len(heads), at_once):
                variants = _lacking(made, head_results(made.block, outputs, heads[first : first + at_once]))
                yield _nats(model, variants, rotation, layer + 1, targets)
        x = made.resid_post
    yield _nats(model, x[None], rotation, len(model.blocks), targets)


def _lacking(made: Activations, missing: Tensor) -> Tensor:
    """Return the stream after a block, [n, B, T, D], if its attention had not added `missing`, of the same shape."""
    if made.block.parallel:  # nothing in a parallel block reads what its heads write
        return made.resid_post - missing
    # subtract from the stream, which is float32, not from the output of attention, which may be bfloat16
    return made.block.after_attention(made.resid_pre - missing, made.attn_out)


def _nats(model: GPT, x: Tensor, rotation: Tensor | None, layer: int, targets: Tensor) -> Tensor:
    """Return each window's summed loss for n variants x [n, B, T, D] of the input of block `layer`: float64 [n, B]."""
    n, B, T, _ = x.shape
    x = x.flatten(0, 1)
    for block in model.blocks[layer:]:
        x = block(x, rotation)
    nats = token_nll(model, x, targets.expand(n, B, T).flatten(0, 1))
    return nats.view(n, B, T).to(float64_device(x.device)).sum(-1, dtype=torch.float64)


def _mean_outputs(model: GPT, batches: Iterable[Tensor]) -> Tensor:
    """Mean output of each head of each layer over all input tokens of windows [B, T + 1]: [L, H, K]."""
    sizes, like = model.config, model.token_embedding.weight
    shape = sizes.num_blocks, sizes.num_heads, sizes.value_size
    sums = torch.zeros(shape, dtype=torch.float64, device=float64_device(like.device))
    num_tokens = 0
    for tokens in batches:
        for layer, made in enumerate(walk(model, *model.embed(tokens[:, :-1]))):
            sums[layer] += made.heads.to(sums.device).sum((0, 2), dtype=torch.float64)
        num_tokens += tokens[:, 1:].numel()
    return (sums / num_tokens).to(like)
