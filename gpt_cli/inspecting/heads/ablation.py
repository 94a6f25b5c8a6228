"""What heads are worth: how much the loss rises when one is removed, all heads of a layer in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gpt_cli.inspecting.heads.attribution import head_outputs, written
from gpt_cli.machine.devices import autocast, exact, send, tokens_at_once
from gpt_cli.model import GPT
from gpt_cli.model.attention import join_heads
from gpt_cli.model.gpt import require_finite
from gpt_cli.sampling.scoring import LOGITS_AT_ONCE, in_batches, standard_error
from gpt_cli.text.token_store import Ids
from gpt_cli.text.token_store import windows as token_windows

WAYS = ("zero", "mean", "layer")


@dataclass(frozen=True)
class Ablation:
    """The loss of a model on some windows, nats per token, and how much it rises without a head or a layer.

    `changes` and their standard errors are float64 [layers, heads], or [layers] for whole layers. The errors are those
    of the differences window by window, which vary less than the losses; NaN for fewer than two windows.
    """

    loss: float
    changes: np.ndarray
    errors: np.ndarray


@torch.no_grad()
def ablate(
    model: GPT,
    ids: Ids,
    windows: Sequence[tuple[int, int]],
    *,
    how: str,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    dtype: str = "float32",
    count: Callable[[int], object] = lambda _: None,
) -> Ablation:
    """What each of the given heads (None: all) is worth on windows (start, end) of ids; `how` is one of WAYS.

    `zero` takes what a head adds to the residual stream away, `mean` puts the mean over these windows in its place, and
    `layer` skips whole blocks. The layers below a head are computed once for all heads. Sequences go through the layers
    above in batches of at most `tokens_at_once` tokens and LOGITS_AT_ONCE logits, so that memory does not grow with the
    number of heads. `count` receives the number of tokens done since its last call. Raises CheckpointError where losses
    are not finite.
    """
    assert how in WAYS
    assert not model.training
    layers = range(model.config.num_blocks) if layers is None else layers
    heads = range(model.config.num_heads) if heads is None else heads
    device = model.token_embedding.weight.device
    starts, ends = np.array(windows).T
    lengths, num_variants = ends - starts, 1 if how == "layer" else len(heads)
    # a token without one head and the same token without another one count as two
    num_tokens = min(tokens_at_once(device, 2**11), LOGITS_AT_ONCE // model.vocab_size)
    at_once = max(1, num_tokens // int(lengths.max()))
    nats = np.zeros((len(layers) * num_variants + 1, len(windows)))  # the last row is the whole model's
    with autocast(device, dtype):
        means = None
        if how == "mean":
            means = _mean_outputs(model, (tokens for _, tokens in _batches(ids, starts, lengths, at_once, device)))
        for numbers, tokens in _batches(ids, starts, lengths, max(1, at_once // num_variants), device):
            if how == "layer":
                found = _without_layers(model, tokens, layers)
            else:
                found = _without_heads(model, tokens, layers, heads, means, max(1, at_once // len(tokens)))
            nats[:, numbers] = torch.cat([*found]).cpu().numpy()
            count(int(lengths[numbers].sum()))
    require_finite(torch.from_numpy(nats), "losses")
    rises, num_tokens = nats[:-1] - nats[-1], lengths.sum()
    errors = [np.nan if (error := standard_error(rise, lengths)) is None else error for rise in rises]
    shape = (len(layers),) if how == "layer" else (len(layers), len(heads))
    changes = (rises.sum(1) / num_tokens).reshape(shape)
    return Ablation(float(nats[-1].sum() / num_tokens), changes, np.array(errors).reshape(shape))


def _batches(
    ids: Ids, starts: np.ndarray, lengths: np.ndarray, batch_size: int, device: torch.device
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Windows of equal length together: their numbers [B], and their ids with the last target [B, T + 1]."""
    for numbers in in_batches(lengths, batch_size):
        tokens = token_windows(ids, starts[numbers], int(lengths[numbers[0]]) + 1)
        yield numbers, send(torch.from_numpy(tokens.astype(np.int64)), device)


def _without_heads(
    model: GPT, tokens: Tensor, layers: Sequence[int], heads: Sequence[int], means: Tensor | None, at_once: int
) -> Iterator[Tensor]:
    """Yields what the windows [B, T + 1] cost without each head, then what they cost the whole model, as [n, B]."""
    targets = tokens[:, 1:]
    x, rotation = model.embed(tokens[:, :-1])
    for layer, block in enumerate(model.blocks):
        outputs = head_outputs(block, x, rotation)
        attended = block.attention.projection_layer(join_heads(outputs))
        if layer in layers:
            missing = outputs if means is None else outputs - means[layer][:, None]
            for first in range(0, len(heads), at_once):
                some = heads[first : first + at_once]
                # taken from x, which stays in float32, and not from what attention adds to it
                variants = block.after_attention(x - written(block, missing, some), attended)
                yield _nats(model, variants, rotation, layer + 1, targets)
        x = block.after_attention(x, attended)
    yield _nats(model, x[None], rotation, len(model.blocks), targets)


def _without_layers(model: GPT, tokens: Tensor, layers: Sequence[int]) -> Iterator[Tensor]:
    """Yields what the windows [B, T + 1] cost without each layer, then what they cost the whole model, as [1, B]."""
    targets = tokens[:, 1:]
    x, rotation = model.embed(tokens[:, :-1])
    for layer, block in enumerate(model.blocks):
        if layer in layers:
            yield _nats(model, x[None], rotation, layer + 1, targets)
        x = block(x, rotation)
    yield _nats(model, x[None], rotation, len(model.blocks), targets)


def _nats(model: GPT, x: Tensor, rotation: Tensor | None, layer: int, targets: Tensor) -> Tensor:
    """What each window costs, from the variants [n, B, T, D] of the input of a layer: float64 [n, B]."""
    n, B, T, _ = x.shape
    x = x.flatten(0, 1)
    for block in model.blocks[layer:]:
        x = block(x, rotation)
    logits = model.logits(x)
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    nats = F.cross_entropy(logits.flatten(0, 1), targets.expand(n, B, T).flatten(), reduction="none")
    return nats.view(n, B, T).to(exact(x.device)).sum(-1, dtype=torch.float64)


def _mean_outputs(model: GPT, batches: Iterable[Tensor]) -> Tensor:
    """The mean of what each head of each layer gives over all inputs of the windows [B, T + 1]: [L, H, K]."""
    sizes, like = model.config, model.token_embedding.weight
    shape = sizes.num_blocks, sizes.num_heads, sizes.value_size
    sums = torch.zeros(shape, dtype=torch.float64, device=exact(like.device))
    num_tokens = 0
    for tokens in batches:
        x, rotation = model.embed(tokens[:, :-1])
        for layer, block in enumerate(model.blocks):
            outputs = head_outputs(block, x, rotation)
            sums[layer] += outputs.to(sums.device).sum((0, 2), dtype=torch.float64)
            x = block.after_attention(x, block.attention.projection_layer(join_heads(outputs)))
        num_tokens += tokens[:, 1:].numel()
    return (sums / num_tokens).to(like)
