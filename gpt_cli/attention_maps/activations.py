"""Run a model block by block, so that a caller can read or replace any activation of a block.

The model has no hooks: this module calls the model's own functions on the model's parameters. Activations inside
attention are named as in `Stages` (queries, weights), those of the residual stream as in TransformerLens (resid_pre).
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from gpt_cli.common.machine.devices import to_device
from gpt_cli.config.model import unknown_form
from gpt_cli.model import GPT, Block, GroupedQueryAttention, MultiHeadAttention
from gpt_cli.model.attention import SelfAttention, causal_mask, join_heads


class Activations:
    """Activations of a block on n sequences of T tokens, without dropout; each is computed when it is first read.

    A caller may replace an activation, as in `made.heads = x`; what is first read afterwards depends on x. `rotation`
    is from `model.embed`. `chosen`: the heads to compute (None: all, which attn_out needs). For the last t
    positions alone, first set `made.queries = made.queries[:, :, -t:]`, then `made.resid_pre = made.resid_pre[:, -t:]`.
    """

    def __init__(self, block: Block, resid_pre: Tensor, rotation: Tensor | None, chosen: Sequence[int] | None = None):
        self.block, self.rotation, self._chosen = block, rotation, chosen
        self.resid_pre = resid_pre  # the residual stream [n, T, D]

    @cached_property
    def _projections(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.block.attention.project(self.block.attention_input(self.resid_pre), self.rotation, self._chosen)

    @cached_property
    def queries(self) -> Tensor:  # [n, H, T, K], as are keys and values
        return self._projections[0]

    @cached_property
    def keys(self) -> Tensor:
        return self._projections[1]

    @cached_property
    def values(self) -> Tensor:
        return self._projections[2]

    @cached_property
    def weights(self) -> Tensor:  # [n, H, t, T]
        return self._weights()

    def _weights(self) -> Tensor:
        """Compute attention weights as `attend` does: [n, H, t, T], for n sequences, the last t tokens as queries."""
        attention, queries, keys = self.block.attention, self.queries.flatten(0, 1), self.keys.flatten(0, 1)
        # only the rows of the last t tokens, where `causal_bias` would make a float for each pair of tokens
        hidden = causal_mask(keys.shape[1], keys.device, attention.window)[-queries.shape[1] :]
        bias = queries.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)
        scores = torch.baddbmm(bias, queries, keys.transpose(1, 2), alpha=attention.scale)
        return scores.softmax(dim=-1).unflatten(0, self.queries.shape[:2])

    @cached_property
    def heads(self) -> Tensor:  # [n, H, t, K], what the projection layer reads
        # weights grow with the square of T, so they are kept only where they were read or set
        weights = self.weights if "weights" in vars(self) else self._weights()
        return torch.bmm(weights.flatten(0, 1), self.values.flatten(0, 1)).unflatten(0, weights.shape[:2])

    @cached_property
    def attn_out(self) -> Tensor:  # [n, t, D], as is what follows
        return self.block.attention.projection_layer(join_heads(self.heads))

    @cached_property
    def _middle(self) -> tuple[Tensor, Tensor]:
        return self.block.feed_forward_input(self.resid_pre, self.attn_out)

    @cached_property
    def mlp_out(self) -> Tensor:
        return self.block.feed_forward(self._middle[1])

    @cached_property
    def resid_post(self) -> Tensor:
        return self.block.after_feed_forward(self._middle[0], self.mlp_out)


def walk(model: GPT, x: Tensor, rotation: Tensor | None, first: int = 0) -> Iterator[Activations]:
    """Yield the `Activations` of each block from layer `first` on; x [n, T, D] is the input of layer `first`.

    A block's `resid_post` is the input of the next block; the caller may replace `resid_post` before the next
    iteration. `model.embed` returns x for layer 0, and `rotation`.
    """
    assert not model.training
    for block in model.blocks[first:]:
        made = Activations(block, x, rotation)
        yield made
        x = made.resid_post


def projections_of(attention: SelfAttention, head: int, who: str) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    """Return the linear layers Wq, Wk, Wv of a head; in grouped-query attention, Wk and Wv belong to the head's group.

    Raises UsageError unless attention is multi-head or grouped-query; the message names the command `who`.
    """
    # exactly these: a form derived from one of them may compute something else
    if type(attention) is GroupedQueryAttention:
        group = attention.group_of(head)
        return attention.heads[head].Wq, group.Wk, group.Wv
    if type(attention) is MultiHeadAttention:
        parameters = attention.heads[head]
        return parameters.Wq, parameters.Wk, parameters.Wv
    raise unknown_form(who, type(attention).__name__)


def head_columns(block: Block) -> Tensor:
    """Return each head's columns [D, K] of the weight matrix of the output projection: [H, D, K]."""
    return block.attention.projection_layer.weight.unflatten(1, (block.attention.num_heads, -1)).transpose(0, 1)


def head_results(block: Block, outputs: Tensor, heads: Sequence[int]) -> Tensor:
    """Compute what `heads` add to the residual stream, from all heads' outputs: [B, H, T, K] -> [heads, B, T, D]."""
    chosen = to_device(torch.tensor(list(heads)), outputs.device)
    return torch.einsum("bhtk,hdk->hbtd", outputs[:, chosen], head_columns(block)[chosen])
