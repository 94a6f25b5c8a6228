"""Direct logit attribution: what each head adds to the logits, and the tokens whose logits it raises or lowers most.

The residual stream sums the embedding and all head and feed-forward outputs. A norm with a frozen scale is linear, so
each logit is a sum over these parts too. Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor, nn

from gpt_cli.attention_maps.activations import head_columns, walk
from gpt_cli.common.machine.devices import to_device
from gpt_cli.evaluation.nll import LOGITS_AT_ONCE
from gpt_cli.model import GPT
from gpt_cli.model.gpt import require_finite

Norm = nn.LayerNorm | nn.RMSNorm


@dataclass(frozen=True)
class Writes:
    """The ids of the tokens whose logits each head raises and lowers most, strongest first: [layers, heads, T, top].

    `raised_by` and `lowered_by` are the changes of these logits minus the mean change over the vocabulary, because a
    shift of all logits changes no probability.
    """

    raised: np.ndarray  # ids
    raised_by: np.ndarray
    lowered: np.ndarray
    lowered_by: np.ndarray


def centred(norm: Norm, x: Tensor) -> Tensor:
    """Centre vectors as the norm does before it divides: LayerNorm subtracts the mean, RMSNorm subtracts nothing."""
    return x - x.mean(-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else x


def scale(norm: Norm, x: Tensor) -> Tensor:
    """Return the factor by which a norm, before its gain, multiplies each centred vector: [..., D] -> [..., 1]."""
    return (centred(norm, x).square().mean(-1, keepdim=True) + (norm.eps or 0)).rsqrt()


def head_writes_bytes(model: GPT, num_queries: int) -> int:
    """Estimate the temporary memory of `head_writes`, in bytes."""
    V, D = model.vocab_size, model.config.d_model
    return 12 * V * D + 8 * min(V * num_queries, LOGITS_AT_ONCE)


@torch.no_grad()
def head_writes(
    model: GPT,
    ids: Sequence[int],
    *,
    queries: Sequence[int] | None = None,
    layers: Sequence[int],
    heads: Sequence[int],
    top: int,
    count: Callable[[int], object] = lambda _: None,
) -> Writes:
    """Return, for each head and position, the `top` tokens whose logits the head raises most, and lowers most.

    `layers`, `heads` and `queries` (positions; None: all) restrict the result. `top` is cut to vocab_size. At most
    LOGITS_AT_ONCE logits are in memory at a time. After each head, `count` receives the number of positions. Raises
    CheckpointError if the scales of norms are not finite.
    """
    assert not model.training
    queries = range(len(ids)) if queries is None else queries
    outputs, scales = _outputs_and_scales(model, ids, queries)
    top, at_once = min(top, model.vocab_size), max(1, LOGITS_AT_ONCE // model.vocab_size)
    # the reader of the stream: the final norm and the output layer, preceded by the norms of later post-norm blocks
    reader = through(model.final_norm, model.output_weight - model.output_weight.mean(0))
    contributions = {}
    for layer in reversed(range(min(layers), len(model.blocks))):
        block = model.blocks[layer]
        if not block.pre_norm:
            reader = through(block.norm_1, through(block.norm_2, reader))
        for head in heads if layer in layers else ():
            factors = head_columns(block)[head].T, reader.T  # [K, D], [D, V]
            mixed = outputs[layer][head] * scales[layer]  # [queries, K]
            # multi_dot takes the cheaper order: only for many positions, it multiplies the two factors first
            parts = [_extremes(torch.linalg.multi_dot((some, *factors)), top) for some in mixed.split(at_once)]
            contributions[layer, head] = [torch.cat(of_parts) for of_parts in zip(*parts, strict=True)]
            count(len(queries))
    columns = zip(*(contributions[layer, head] for layer in layers for head in heads), strict=True)
    shape = (len(layers), len(heads), len(queries), -1)
    return Writes(*(torch.stack(column).view(shape).cpu().numpy() for column in columns))


def _outputs_and_scales(model: GPT, ids: Sequence[int], queries: Sequence[int]) -> tuple[list[Tensor], list[Tensor]]:
    """Return, for each layer, the heads' outputs [H, queries, K], and the factor [queries, 1] that norms apply to them.

    The factor is the product of the scales of all norms on the way to the logits; CheckpointError if it is not finite.
    """
    batch = to_device(torch.tensor([list(ids)]), model.token_embedding.weight.device)
    x, rotation = model.embed(batch)
    chosen = to_device(torch.tensor(list(queries)), batch.device)
    outputs, own_scales = [], []
    for made in walk(model, x, rotation):
        block, x = made.block, made.resid_post
        outputs.append(made.heads[0, :, chosen])
        if block.pre_norm:
            own_scales.append(torch.ones_like(x[0, chosen, :1]))
        else:
            summed = (made.resid_pre + made.attn_out)[0, chosen]
            middle = block.norm_1(summed)
            own_scales.append(scale(block.norm_1, summed) * scale(block.norm_2, middle + block.feed_forward(middle)))
    # cumulative products of the scales, from the output layer down
    _, *scales = accumulate([scale(model.final_norm, x[0, chosen]), *reversed(own_scales)], torch.mul)
    require_finite(scales[-1], "norms", model.where)
    return outputs, scales[::-1]


def through(norm: Norm, reader: Tensor) -> Tensor:
    """Return `reader` [..., D], which multiplies a norm's output, with its gain and centring (no bias) folded in."""
    return centred(norm, reader * norm.weight.to(reader))


def _extremes(logits: Tensor, top: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return ids and values of the largest logits, then of the smallest: [T, V] -> [T, top] each."""
    highest, lowest = logits.topk(top), logits.topk(top, largest=False)
    return highest.indices, highest.values, lowest.indices, lowest.values
