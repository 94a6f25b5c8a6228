"""Runs of a prompt that are changed inside: what a prompt made in every block, and how the run goes on from a change.

A change of the residual stream reaches only later positions and higher blocks. So the keys and values of earlier
positions are those of the recorded run, and of the last block one position is enough to predict the next token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gpt_cli.attention_maps.logit_attribution import head_columns
from gpt_cli.common.machine.devices import tokens_at_once
from gpt_cli.model import GPT, Block
from gpt_cli.model.attention import SelfAttention, attend, causal_mask, join_heads


@dataclass(frozen=True)
class Recorded:
    """What a prompt of T tokens made in each block: the stream before and after it and its branches, each [T, D].

    `heads` are the outputs of the heads before the projection layer [H, T, K]; keys and values have as many heads.
    """

    rotation: Tensor | None
    entered: list[Tensor] = field(default_factory=list)
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    heads: list[Tensor] = field(default_factory=list)
    attended: list[Tensor] = field(default_factory=list)
    fed: list[Tensor] = field(default_factory=list)
    left: list[Tensor] = field(default_factory=list)


def record(model: GPT, ids: Tensor) -> Recorded:
    """Run a model on ids [T] and keep what its blocks make; with gradients where torch records them."""
    assert not model.training
    x, rotation = model.embed(ids[None])
    if torch.is_grad_enabled():
        x = x.detach().requires_grad_()
    found = Recorded(rotation)
    for block in model.blocks:
        attention = block.attention
        queries, keys, values = attention.project(block.attention_input(x), rotation)
        heads = mix(attention, queries, keys, values)
        # what later blocks read is what is kept, so that a gradient reaches it
        found.entered.append(x[0])
        for kept, made in ((found.keys, keys), (found.values, values), (found.heads, heads)):
            kept.append(made[0])
        found.attended.append(attention.projection_layer(join_heads(found.heads[-1][None]))[0])
        x, seen = block.feed_forward_input(x, found.attended[-1][None])
        found.fed.append(block.feed_forward(seen)[0])
        found.left.append(block.after_feed_forward(x, found.fed[-1][None])[0])
        x = found.left[-1][None]
    return found


def mix(attention: SelfAttention, queries: Tensor, keys: Tensor, values: Tensor, heads: range | None = None) -> Tensor:
    """What heads give whose t queries are the last of T tokens: [n, H, t, K], twice [n, H, T, K] -> [n, H, t, K]."""
    t, T = queries.shape[2], keys.shape[2]
    hidden = causal_mask(T, queries.device, attention.window)[T - t :]
    bias = queries.new_zeros(t, T).masked_fill(hidden, -torch.inf)
    added = attention.distance_bias(t, T, heads or range(attention.num_heads), queries)
    if added is not None:
        bias = (bias + added).repeat(len(queries), 1, 1)
    mixed, _ = attend(queries.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1), bias, attention.scale)
    return mixed.unflatten(0, queries.shape[:2])


def head_change(block: Block, head: int, change: Tensor) -> Tensor:
    """What a change of the output of a head adds to the output of its attention: [..., K] -> [..., D]."""
    return change @ head_columns(block)[head].T


def finish(model: GPT, recorded: Recorded, start: int, changed: Mapping[int, Tensor]) -> Tensor:
    """The last position after all blocks, of runs that change: [N, D], layer after layer of `changed`.

    `changed` has for a layer n ways in which the stream after its block differs from the recorded one: [n, T - start,
    D], from position `start` on. All of them go through a block together, at most `tokens_at_once` tokens at a time.
    """
    running = recorded.left[0].new_empty(0, len(recorded.left[0]) - start, recorded.left[0].shape[1])
    at_once = max(1, tokens_at_once(running.device, 2**11) // running.shape[1])
    for layer in range(min(changed), len(model.blocks)):
        is_last = layer == len(model.blocks) - 1
        together = running.split(at_once) if len(running) else ()
        parts = [_through(model, recorded, layer, some, is_last) for some in together]
        if layer in changed:
            parts.append(changed[layer][:, -1:] if is_last else changed[layer])
        running = torch.cat(parts)
    return running[:, -1]


def _through(model: GPT, recorded: Recorded, layer: int, x: Tensor, is_last: bool) -> Tensor:
    """A block on the last t tokens [n, t, D]; where it is the last block, its last position alone [n, 1, D]."""
    block, earlier = model.blocks[layer], recorded.keys[layer].shape[1] - x.shape[1]
    attention = block.attention
    rotation = None if recorded.rotation is None else recorded.rotation[:, earlier:]
    queries, *own = attention.project(block.attention_input(x), rotation)
    before = (found[layer][:, :earlier].expand(len(x), -1, -1, -1) for found in (recorded.keys, recorded.values))
    keys, values = (torch.cat(parts, dim=2) for parts in zip(before, own, strict=True))
    if is_last:
        queries, x = queries[:, :, -1:], x[:, -1:]
    return block.after_attention(x, attention.projection_layer(join_heads(mix(attention, queries, keys, values))))
