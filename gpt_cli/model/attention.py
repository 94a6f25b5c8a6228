"""Causal self-attention: one head step by step, then many heads, fused or one by one, on the same parameters."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.model.dropout import DropMasks, Dropout, drop_out
from gpt_cli.model.positions import rotate

# types of devices whose attention kernel is not used; on others, the kernel saves memory. The CPU kernel is slower
# than `attend` at these lengths, and the mps kernel lets queries see later tokens in bfloat16 (pytorch #195910)
WITHOUT_KERNEL = ("cpu", "mps")

# (queries, keys, values [B, H, T, K], source of the dropout mask, scale) -> mixed values [B, H, T, K]
Kernel = Callable[[Tensor, Tensor, Tensor, DropMasks, float], Tensor]
Projections = tuple[Tensor, Tensor, Tensor]  # queries, keys and values


def causal_mask(num_tokens: int, device: torch.device | None = None, window: int | None = None) -> Tensor:
    """Return the causal mask, bool [T, T] with queries as rows: True where a query must not attend to a key.

    With `window`, a query attends to itself and the `window` - 1 tokens before it. Beltagy et al. 2020, section 3.1.
    """
    later = torch.ones(num_tokens, num_tokens, dtype=torch.bool, device=device).triu(1)
    return later if window is None else ~(~later).triu(1 - window)


def document_mask_of(positions: Tensor) -> Tensor:
    """Return a mask, True where query and key belong to different packed texts: positions [B, T] -> bool [B, T, T].

    A text begins wherever the position is 0. Krell et al. 2021, section 3.2.
    """
    text = (positions == 0).cumsum(dim=1)
    return text[:, :, None] != text[:, None, :]


def attention_scores(queries: Tensor, keys: Tensor) -> Tensor:
    """Compute the dot product of each query with each key: queries and keys [..., T, K] -> scores [..., T, T]."""
    return queries @ keys.transpose(-2, -1)


def score_scale(size: int, scaled: bool = True) -> float:
    """Return the factor for scores of queries and keys of width `size`: 1 / sqrt(size), or 1 if not `scaled`."""
    return size**-0.5 if scaled else 1.0


def attention_weights(scores: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Return softmax(scores * scale) over the keys where `mask` is False: [..., T, T] -> [..., T, T].

    Each row sums to 1. Vaswani et al. 2017, eq. 1, where the scale is 1 / sqrt(K).
    """
    return (scores * scale).masked_fill(mask, -torch.inf).softmax(dim=-1)


class Stages(NamedTuple):
    """Intermediate tensors of attention: queries, keys, values, outputs [..., T, K], scores and weights [..., T, T]."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    scores: Tensor  # before scale and mask
    weights: Tensor
    heads: Tensor  # the output, weights @ values


def causal_stages(queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None = None) -> Stages:
    """Return all tensors of one head's attention on queries, keys, values [B, T, K]; `window`: see `causal_mask`."""
    scores = attention_scores(queries, keys)
    weights = attention_weights(scores, causal_mask(queries.shape[-2], queries.device, window), scale)
    return Stages(queries, keys, values, scores, weights, weights @ values)


class Attention(nn.Module):
    """One head of causal self-attention: [B, T, D] -> [B, T, K]. Vaswani et al. 2017, section 3.2.1.

    Scores are divided by sqrt(K) if `scaled`. With `qkv_bias`, the projections to queries, keys and values have biases.
    """

    def __init__(
        self, d_model: int, head_size: int, dropout: float = 0.0, *, qkv_bias: bool = False, scaled: bool = True
    ):
        super().__init__()
        self.Wq = nn.Linear(d_model, head_size, bias=qkv_bias)
        self.Wk = nn.Linear(d_model, head_size, bias=qkv_bias)
        self.Wv = nn.Linear(d_model, head_size, bias=qkv_bias)
        self.dropout = Dropout(dropout)
        self.scale = score_scale(head_size, scaled)

    def stages(self, x: Tensor, rotation: Tensor | None = None) -> Stages:
        """Return all `Stages` for x [B, T, D], without dropout; `rotation` [2, T, K] has RoPE's cosines and sines."""
        queries, keys = self.Wq(x), self.Wk(x)
        if rotation is not None:
            queries, keys = rotate(queries, rotation), rotate(keys, rotation)
        return causal_stages(queries, keys, self.Wv(x), self.scale)

    def weights(self, x: Tensor, rotation: Tensor | None = None) -> Tensor:
        """Compute attention weights: [B, T, D] -> [B, T, T]; row t sums to 1 over tokens 0..t and is 0 after them."""
        return self.stages(x, rotation).weights

    def forward(self, x: Tensor, rotation: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """Compute the output [B, T, K]; dropout keeps weights where `keep` [B, T, T] is True (None: a random mask)."""
        stages = self.stages(x, rotation)
        return self.dropout(stages.weights, keep) @ stages.values


def concatenate_layers(layers: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """Concatenate layers with the same input into one weight [sum of out, in] and one bias [sum of out].

    One F.linear then computes all layers, and gradients reach each of them. The bias is None if no layer has one.
    """
    weights: list[Tensor] = [layer.weight for layer in layers]
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    assert len(biases) in (0, len(layers))
    return torch.cat(weights), torch.cat(biases) if biases else None


def causal_bias(queries: Tensor, window: int | None = None, document_mask: Tensor | None = None) -> Tensor:
    """Return the mask to add to scores, as `causal_mask` with `window`: -inf where a query must not attend, else 0.

    For queries [B, H, T, K], the mask is [T, T], or [B * H, T, T] with `document_mask` [B, T, T] (True: no attention).
    """
    B, H, T, _ = queries.shape
    hidden = queries.new_zeros(T, T).masked_fill(causal_mask(T, queries.device, window), -torch.inf)
    if document_mask is None:
        return hidden
    return hidden.repeat(B * H, 1, 1).masked_fill_(document_mask.repeat_interleave(H, dim=0), -torch.inf)


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor | None,
    scale: float,
    dropout: float = 0.0,
    keep: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute attention of N heads at once; return outputs [N, T, K'] and attention weights [N, T, S].

    Queries are [N, T, K], keys [N, S, K], values [N, S, K']; K' may differ from K. N is B * H, S the number of keys.
    The weights are softmax(queries keysᵀ * scale + bias), before dropout. `bias` is [T, S], [1, T, S], [N, T, S] or
    None (0). `dropout` is a rate; dropout keeps weights where `keep` [N, T, S] is True (None: torch draws a mask).
    """
    if bias is None:
        scores = torch.bmm(queries * scale, keys.transpose(1, 2))
    else:
        # added inside the product, which saves a pass over the scores
        scores = torch.baddbmm(bias, queries, keys.transpose(1, 2), alpha=scale)
    weights = scores.softmax(dim=-1)
    dropped = drop_out(weights, keep, dropout) if dropout else weights
    return torch.bmm(dropped, values), weights


class HeadNorm(nn.RMSNorm):
    """RMSNorm of the queries or keys of each head: [..., K] -> [..., K], computed in the dtype of the norm's weight.

    Henry et al. 2020 normalise queries and keys so that scores stay bounded; this form is Qwen3's (Yang et al. 2025).
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


class SelfAttention(nn.Module, ABC):
    """Base class of multi-head, grouped-query and latent attention, all causal with H heads: [B, T, D] -> [B, T, D].

    A subclass defines the parameters and computes queries, keys and values in two ways: for one head (`project_head`)
    and for all heads at once (`project`). With `fused`, all heads run in a few large products; otherwise each head runs
    by itself. Both ways use the same parameters and give the same result up to rounding.
    """

    num_heads: int
    projection_layer: nn.Linear
    dropout: Dropout
    scale: float
    window: int | None = None  # tokens that a token attends to, itself included
    fused = True
    kernel: Kernel | None = None  # for training with dropout, if a trial has chosen it
    shared_weights: tuple[Tensor, Tensor | None] | None = None  # projection_weights of all heads, for several batches

    def __init__(self) -> None:
        super().__init__()
        self.query_norm: HeadNorm | None = None
        self.key_norm: HeadNorm | None = None

    @abstractmethod
    def project_head(self, head: int, x: Tensor, rotation: Tensor | None) -> Projections:
        """Compute a head's queries, keys, values [B, T, size] from x [B, T, D]; arguments and sizes as in `project`."""

    @abstractmethod
    def project(self, x: Tensor, rotation: Tensor | None, heads: Sequence[int] | None = None) -> Projections:
        """Compute queries, keys and values of `heads` (None: all) from x [B, T, D]: each [B, heads, T, size].

        `rotation` [2, T, R] rotates queries and keys (None: no RoPE). `size` is K; for latent queries and keys, K + R.
        """

    def add_norms(self, head_size: int, epsilon: float | None) -> None:
        """Add RMSNorms of queries and of keys, with gains [K] that all heads share; do nothing if `epsilon` is None."""
        if epsilon is not None:
            self.query_norm, self.key_norm = HeadNorm(head_size, eps=epsilon), HeadNorm(head_size, eps=epsilon)

    def norm_and_rotate(self, queries: Tensor, keys: Tensor, rotation: Tensor | None) -> tuple[Tensor, Tensor]:
        """Normalise queries and keys [..., T, K], if norms were added, and rotate both unless `rotation` is None."""
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys = self.query_norm(queries), self.key_norm(keys)
        return (queries, keys) if rotation is None else (rotate(queries, rotation), rotate(keys, rotation))

    def forward(
        self,
        x: Tensor,
        rotation: Tensor | None = None,
        keep: Tensor | DropMasks | None = None,
        document_mask: Tensor | None = None,
    ) -> Tensor:
        """Attend with all heads: [B, T, D] -> [B, T, D]. Dropout keeps weights where `keep` [B, H, T, T] is True.

        If `keep` is None, torch draws a mask; if it is a DropMasks, the Triton kernel does. `document_mask` [B, T, T]
        is True where query and key belong to different texts; without `fused`, `document_mask` must be None.
        """
        if not self.fused:
            assert document_mask is None, "one head by itself computes one text"
            assert not isinstance(keep, DropMasks), "one head by itself has no kernel"
            return self.projection_layer(self.separate_heads(x, rotation, keep))
        queries, keys, values = self.project(x, rotation)
        dropout = self.dropout.p if self.training else 0.0
        sees_all = self.window is None or self.window >= x.shape[1]
        if isinstance(keep, DropMasks):
            assert self.kernel is not None
            mixed = self.kernel(queries, keys, values, keep, self.scale)
        elif x.device.type not in WITHOUT_KERNEL and not dropout and sees_all:
            visible = None if document_mask is None else ~(causal_mask(x.shape[1], x.device) | document_mask)[:, None]
            mixed = F.scaled_dot_product_attention(
                queries, keys, values, attn_mask=visible, is_causal=visible is None, scale=self.scale
            )
        else:
            flat = queries.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1)
            of_heads = None if keep is None else keep.flatten(0, 1)
            mixed, _ = attend(*flat, causal_bias(queries, self.window, document_mask), self.scale, dropout, of_heads)
            mixed = mixed.unflatten(0, queries.shape[:2])
        return self.projection_layer(join_heads(mixed))

    def separate_heads(self, x: Tensor, rotation: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """Compute one head after another, with dropout mask `keep`; join their outputs: [B, T, D] -> [B, T, H * K]."""
        outputs = []
        for head in range(self.num_heads):
            stages = self.head_stages(head, x, rotation)
            weights = self.dropout(stages.weights, None if keep is None else keep[:, head])
            outputs.append(weights @ stages.values)
        return torch.cat(outputs, dim=-1)

    def head_stages(self, head: int, x: Tensor, rotation: Tensor | None) -> Stages:
        """Compute one head's intermediate tensors from x [B, T, D], without dropout; no RoPE if `rotation` is None."""
        queries, keys, values = self.project_head(head, x, rotation)
        return causal_stages(queries, keys, values, self.scale, self.window)

    def stages(self, x: Tensor, rotation: Tensor | None, heads: Sequence[int]) -> Stages:
        """Compute intermediate tensors [B, heads, T, ...] of `heads` without dropout; no RoPE if `rotation` is None."""
        queries, keys, values = self.project(x, rotation, heads)
        flat = queries.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1)
        attended = attend(*flat, causal_bias(queries, self.window), self.scale)
        mixed, weights = (part.unflatten(0, queries.shape[:2]) for part in attended)
        return Stages(queries, keys, values, attention_scores(queries, keys), weights, mixed)


class MultiHeadAttention(SelfAttention):
    """Multi-head attention with an output projection: [B, T, D] -> [B, T, D]. Vaswani et al. 2017, section 3.2.2.

    The head size is `head_size`, or D / H by default. With `norm_epsilon`, an RMSNorm normalises queries and keys.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.0,
        *,
        bias: bool = True,
        qkv_bias: bool = False,
        scaled: bool = True,
        head_size: int | None = None,
        norm_epsilon: float | None = None,
    ):
        super().__init__()
        K = head_size or d_model // num_heads
        heads = (Attention(d_model, K, dropout, qkv_bias=qkv_bias, scaled=scaled) for _ in range(num_heads))
        self.heads = cast("Sequence[Attention]", nn.ModuleList(heads))
        self.num_heads = num_heads
        self.projection_layer = nn.Linear(num_heads * K, d_model, bias=bias)
        self.add_norms(K, norm_epsilon)
        self.dropout = Dropout(dropout)
        self.scale = self.heads[0].scale

    def project_head(self, head: int, x: Tensor, rotation: Tensor | None) -> Projections:
        """Compute one head's queries, keys, values, each [B, T, K], from x [B, T, D]; no RoPE if `rotation` is None."""
        attention = self.heads[head]
        return *self.norm_and_rotate(attention.Wq(x), attention.Wk(x), rotation), attention.Wv(x)

    def project(self, x: Tensor, rotation: Tensor | None, heads: Sequence[int] | None = None) -> Projections:
        """Compute queries, keys, values [B, heads, T, K] of `heads` (None: all); no RoPE if `rotation` is None."""
        chosen = range(self.num_heads) if heads is None else heads
        weights = self.shared_weights or self.projection_weights(chosen)
        projections = F.linear(x, *weights)  # [B, T, 3 x heads x K]
        parts = projections.chunk(3, dim=2)  # whose gradients are concatenated by one operation
        queries, keys, values = (part.unflatten(2, (len(chosen), -1)).transpose(1, 2) for part in parts)
        return *self.norm_and_rotate(queries, keys, rotation), values

    def projection_weights(self, heads: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        """Concatenate all Wq, then all Wk, then all Wv of `heads`: weight [3 x heads x K, D], bias or None."""
        chosen = [self.heads[head] for head in heads]
        return concatenate_layers([getattr(head, name) for name in ("Wq", "Wk", "Wv") for head in chosen])


def join_heads(heads: Tensor) -> Tensor:
    """Concatenate the outputs of all heads for the projection layer: [B, H, T, K] -> [B, T, H * K]."""
    return heads.transpose(1, 2).flatten(2)
