"""What heads give, and what that adds to the residual stream."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gpt_cli.model import Block


def head_outputs(block: Block, x: Tensor, rotation: Tensor | None) -> Tensor:
    """The outputs of all heads of a block, before its projection layer: [B, T, D] -> [B, H, T, K]."""
    return block.attention.stages(block.attention_input(x), rotation, range(block.attention.num_heads)).heads


def head_columns(block: Block) -> Tensor:
    """The columns of projection_layer that read each head: [H, D, K]."""
    return block.attention.projection_layer.weight.unflatten(1, (block.attention.num_heads, -1)).transpose(0, 1)


def written(block: Block, outputs: Tensor, heads: Sequence[int]) -> Tensor:
    """What the given heads add to the residual stream: outputs of all heads [B, H, T, K] -> [heads, B, T, D]."""
    return torch.einsum("bhtk,hdk->hbtd", outputs[:, list(heads)], head_columns(block)[list(heads)])
