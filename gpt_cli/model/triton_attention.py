"""Causal attention with dropout on its weights in Triton, which never writes the weights: Dao 2023 (FlashAttention-2).

`attend` in attention.py is the readable twin. Masks are those of dropout.py, bit for bit. Needs Triton.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

from gpt_cli.common.rng import MULTIPLIERS
from gpt_cli.model.dropout import ToDraw

_FIRST, _SECOND = (tl.constexpr(multiplier) for multiplier in MULTIPLIERS)


@triton.jit
def _mix(words, half):
    words += half
    words ^= words >> 16
    words *= tl.full((), _FIRST, tl.uint32)
    words ^= words >> 15
    words *= tl.full((), _SECOND, tl.uint32)
    return words ^ (words >> 16)


@triton.jit
def _kept(keys, first, least, head, rows, columns, H, T):
    """Return where dropout keeps a weight: queries [BQ], keys [BK] -> bool [BQ, BK]."""
    lanes = ((head % H) * T + rows[:, None]) * T + columns[None, :]
    words = (first + head // H) * ((H * T * T + 1) // 2) + (lanes >> 1)
    words = words.to(tl.uint32)
    words = _mix(words, tl.load(keys).to(tl.uint32))
    words = _mix(words, tl.load(keys + 1).to(tl.uint32))
    numbers = (words >> (16 * (lanes & 1)).to(tl.uint32)) & 0xFFFF
    return (numbers ^ 0x8000) >= least


@triton.jit
def _tile(source, head, rows, T, D: tl.constexpr, PAD: tl.constexpr):
    """Load rows of one head, [rows, PAD], with zeros beyond the text and the head size."""
    size = tl.arange(0, PAD)
    at = head.to(tl.int64) * T * D + rows[:, None] * D + size[None, :]
    return tl.load(source + at, mask=(rows[:, None] < T) & (size[None, :] < D), other=0.0)


@triton.jit
def _put(target, numbers, head, rows, T, D: tl.constexpr, PAD: tl.constexpr):
    size = tl.arange(0, PAD)
    at = head.to(tl.int64) * T * D + rows[:, None] * D + size[None, :]
    tl.store(target + at, numbers.to(target.dtype.element_ty), mask=(rows[:, None] < T) & (size[None, :] < D))


@triton.jit
def _scores(q, k, rows, columns, scale):
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    return tl.where(columns[None, :] <= rows[:, None], scores, float("-inf"))


@triton.jit(do_not_specialize=["first", "least"])
def _forward(
    Q, K, V, OUT, LSE, keys, first, least, inverse, scale, H, T, D: tl.constexpr, PAD: tl.constexpr, N: tl.constexpr
):
    block, head = tl.program_id(0), tl.program_id(1)
    rows = block * N + tl.arange(0, N)
    q = _tile(Q, head, rows, T, D, PAD)
    best = tl.full((N,), float("-inf"), tl.float32)
    total = tl.zeros((N,), tl.float32)
    out = tl.zeros((N, PAD), tl.float32)
    for start in range(0, (block + 1) * N, N):
        columns = start + tl.arange(0, N)
        scores = _scores(q, _tile(K, head, columns, T, D, PAD), rows, columns, scale)
        highest = tl.maximum(best, tl.max(scores, 1))
        p, shrink = tl.exp(scores - highest[:, None]), tl.exp(best - highest)
        kept = tl.where(_kept(keys, first, least, head, rows, columns, H, T), p, 0.0)
        v = _tile(V, head, columns, T, D, PAD)
        out = out * shrink[:, None] + tl.dot(kept.to(v.dtype), v, input_precision="ieee")
        total, best = total * shrink + tl.sum(p, 1), highest
    _put(OUT, out * (inverse / total)[:, None], head, rows, T, D, PAD)
    tl.store(LSE + head * T + rows, best + tl.log(total), mask=rows < T)


@triton.jit(do_not_specialize=["first", "least"])
def _backward(
    Q, K, V, G, LSE, DELTA, DQ, DK, DV, keys, first, least, inverse, scale, H, T,
    D: tl.constexpr, PAD: tl.constexpr, N: tl.constexpr, OF_KEYS: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of one block of keys and values (OF_KEYS), or of queries."""
    block, head = tl.program_id(0), tl.program_id(1)
    mine = block * N + tl.arange(0, N)
    one, two = tl.zeros((N, PAD), tl.float32), tl.zeros((N, PAD), tl.float32)
    begin, end = 0, (block + 1) * N
    if OF_KEYS:
        begin, end = block * N, T
    for start in range(begin, end, N):
        other = start + tl.arange(0, N)
        rows, columns = mine, other
        if OF_KEYS:
            rows, columns = other, mine
        q, g = _tile(Q, head, rows, T, D, PAD), _tile(G, head, rows, T, D, PAD)
        k, v = _tile(K, head, columns, T, D, PAD), _tile(V, head, columns, T, D, PAD)
        lse = tl.load(LSE + head * T + rows, mask=rows < T, other=float("inf"))
        delta = tl.load(DELTA + head * T + rows, mask=rows < T, other=0.0)
        p = tl.exp(_scores(q, k, rows, columns, scale) - lse[:, None])
        times = tl.where(_kept(keys, first, least, head, rows, columns, H, T), inverse, 0.0)
        of_scores = p * (tl.dot(g, tl.trans(v), input_precision="ieee") * times - delta[:, None]) * scale
        if OF_KEYS:
            one += tl.dot(tl.trans(of_scores).to(q.dtype), q, input_precision="ieee")
            two += tl.dot(tl.trans(p * times).to(g.dtype), g, input_precision="ieee")
        else:
            one += tl.dot(of_scores.to(k.dtype), k, input_precision="ieee")
    if OF_KEYS:
        _put(DK, one, head, mine, T, D, PAD)
        _put(DV, two, head, mine, T, D, PAD)
    else:
        _put(DQ, one, head, mine, T, D, PAD)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        queries, keys, values, halves, masks, scale = inputs
        B, H, T, D = queries.shape
        pad = max(16, triton.next_power_of_2(D))
        sizes = {"D": D, "PAD": pad, "N": 64 if pad <= 64 else 32}
        grid = (triton.cdiv(T, sizes["N"]), B * H)
        rest = (halves, int(masks.first_sequence), round(masks.rate * 2**16), 1 / (1 - masks.rate), scale, H, T)
        out, lse = torch.empty_like(queries), queries.new_empty(B, H, T, dtype=torch.float32)
        _forward[grid](queries, keys, values, out, lse, *rest, **sizes)  # type: ignore[index]
        ctx.save_for_backward(queries, keys, values, out, lse, halves)
        ctx.rest, ctx.grid, ctx.sizes = rest[1:], grid, sizes
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        *three, out, lse, halves = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        delta = (gradient.float() * out.float()).sum(dim=-1)
        results = [torch.empty_like(each) for each in three]
        for of_keys in (True, False):
            tensors = (*three, gradient, lse, delta, *results, halves)
            _backward[ctx.grid](*tensors, *ctx.rest, **ctx.sizes, OF_KEYS=of_keys)  # type: ignore[index]
        return *results, None, None, None


def dropout_attention(queries: Tensor, keys: Tensor, values: Tensor, masks: ToDraw, scale: float) -> Tensor:
    """Compute softmax(queries keysᵀ * scale), with dropout, times values: [B, H, T, K] each -> [B, H, T, K].

    The mask is `masks.keep("weights", [B, H, T, T])`; its keys must be on the device.
    """
    three = (each.to(values.dtype).contiguous() for each in (queries, keys, values))
    assert isinstance(masks.keys, Tensor)
    return _Attention.apply(*three, masks.keys[0], masks, scale)
