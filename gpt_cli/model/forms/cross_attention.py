"""Cross-attention from one sequence to another, and padding masks: parts of encoder-decoder models."""

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from gpt_cli.model.attention import Attention, attention_scores, attention_weights


def padding_mask(ids: Tensor, padding: int) -> Tensor:
    """Return the mask of keys, for all queries alike, True where the id is `padding`: ids [B, S] -> bool [B, 1, S]."""
    return (ids == padding)[:, None, :]


def masked_weights(scores: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Return softmax(scores * scale) over the keys where `mask` is False: [..., T, S] -> [..., T, S].

    Masked weights are exactly 0. If all keys of a row are masked, the row and its gradient are 0, not NaN.
    """
    if mask is None:
        return (scores * scale).softmax(dim=-1)
    nowhere = mask.all(dim=-1, keepdim=True)
    return attention_weights(scores, mask & ~nowhere, scale).masked_fill(nowhere, 0)


class CrossAttention(nn.Module):
    """Multi-head attention with queries from one sequence, and keys and values from another (or the same) sequence.

    Query [B, T, D], key and value [B, S, D] -> [B, T, D]; with one tensor for all three, this is self-attention.
    `mask`, bool [T, S], [B, T, S] or [B, 1, S], is True where a query must not attend to a key; None masks nothing.
    Each head runs by itself. Vaswani et al. 2017, section 3.2.3.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0, *, bias: bool = True):
        super().__init__()
        heads = (Attention(d_model, d_model // num_heads, dropout) for _ in range(num_heads))
        self.heads = cast("Sequence[Attention]", nn.ModuleList(heads))
        self.projection_layer = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        by_head = zip(self.heads, self._weights_by_head(query, key, mask), strict=True)
        outputs = [head.dropout(weights) @ head.Wv(value) for head, weights in by_head]
        return self.projection_layer(torch.cat(outputs, dim=-1))

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compute attention weights [B, H, T, S], without dropout; a row sums to 1, or to 0 if all keys are masked."""
        return torch.stack([*self._weights_by_head(query, key, mask)], dim=1)

    def _weights_by_head(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Iterator[Tensor]:
        for head in self.heads:
            yield masked_weights(attention_scores(head.Wq(query), head.Wk(key)), mask, head.scale)
