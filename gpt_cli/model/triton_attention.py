"""Causal attention with dropout as Triton kernels, which never store attention weights: Dao 2023 (FlashAttention-2).

`attend` in attention.py computes the same with torch. The masks equal those of dropout.py. Needs Triton.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

from gpt_cli.common.rng import MULTIPLIERS
from gpt_cli.model.dropout import ToDraw

_FIRST, _SECOND = (tl.constexpr(multiplier) for multiplier in MULTIPLIERS)

_PRECISION = tl.constexpr("ieee" if torch.version.hip else "tf32x3")  # of float32; AMD's compiler has no tf32x3
_JIT_OPTIONS: Any = {"do_not_specialize": ["least"], "do_not_specialize_on_alignment": ["keys"]}


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
    """Draw a part of a head's dropout mask, for rows (queries) [BQ] and columns (keys) [BK]: bool [BQ, BK]."""
    lanes = ((head % H) * T + rows[:, None]) * T + columns[None, :]
    words = (tl.load(first) + head // H) * ((H * T * T + 1) // 2) + (lanes >> 1)
    words = words.to(tl.uint32)
    words = _mix(words, tl.load(keys).to(tl.uint32))
    words = _mix(words, tl.load(keys + 1).to(tl.uint32))
    numbers = (words >> (16 * (lanes & 1)).to(tl.uint32)) & 0xFFFF
    return (numbers ^ 0x8000) >= least


@triton.jit
def _dot(a, b):
    return tl.dot(a, b, input_precision=_PRECISION)


@triton.jit
def _tile(source, head, rows, T, D: tl.constexpr, PAD: tl.constexpr):
    """Load the given rows of one head, [rows, PAD], with zeros beyond the T tokens and the head size D."""
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
    scores = _dot(q, tl.trans(k)) * scale
    return tl.where(columns[None, :] <= rows[:, None], scores, float("-inf"))


@triton.jit(**_JIT_OPTIONS)
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
        out = out * shrink[:, None] + _dot(kept.to(v.dtype), v)
        total, best = total * shrink + tl.sum(p, 1), highest
    _put(OUT, out * (inverse / total)[:, None], head, rows, T, D, PAD)
    tl.store(LSE + head * T + rows, best + tl.log(total), mask=rows < T)


@triton.jit(**_JIT_OPTIONS)
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
        of_scores = p * (_dot(g, tl.trans(v)) * times - delta[:, None]) * scale
        if OF_KEYS:
            one += _dot(tl.trans(of_scores).to(q.dtype), q)
            two += _dot(tl.trans(p * times).to(g.dtype), g)
        else:
            one += _dot(of_scores.to(k.dtype), k)
    if OF_KEYS:
        _put(DK, one, head, mine, T, D, PAD)
        _put(DV, two, head, mine, T, D, PAD)
    else:
        _put(DQ, one, head, mine, T, D, PAD)


def _launch(queries: Tensor, masks: tuple[Tensor, Tensor], rate: float) -> tuple[Any, list[Any], dict[str, int]]:
    """Return the launch grid of both kernels, the arguments that follow the tensors, and the compile-time options."""
    B, H, T, D = queries.shape
    pad = max(16, triton.next_power_of_2(D))
    # the largest blocks that an H100 computes in its registers (note 0069)
    rows = (64 if pad <= 64 else 32) * 2 // queries.element_size()
    sizes = {"D": D, "PAD": pad, "N": rows, "num_warps": 8 if rows > 16 else 4}
    return (triton.cdiv(T, rows), B * H), [*masks, round(rate * 2**16), 1 / (1 - rate)], sizes


def _run(
    queries: Tensor, keys: Tensor, values: Tensor, halves: Tensor, first: Tensor, rate: float, scale: float
) -> tuple[Tensor, Tensor]:
    grid, rest, sizes = _launch(queries, (halves, first), rate)
    out, lse = torch.empty_like(queries), queries.new_empty(queries.shape[:3], dtype=torch.float32)
    with torch.accelerator.device_index(queries.device.index):
        _forward[grid](queries, keys, values, out, lse, *rest, scale, *queries.shape[1:3], **sizes)  # type: ignore[index]
    return out, lse


def _run_backward(
    queries: Tensor, keys: Tensor, values: Tensor, halves: Tensor, first: Tensor, gradient: Tensor, lse: Tensor,
    delta: Tensor, rate: float, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    grid, rest, sizes = _launch(queries, (halves, first), rate)
    results = torch.empty_like(queries), torch.empty_like(keys), torch.empty_like(values)
    arguments = (queries, keys, values, gradient, lse, delta, *results, *rest, scale, *queries.shape[1:3])
    with torch.accelerator.device_index(queries.device.index):
        for of_keys in (True, False):
            _backward[grid](*arguments, **sizes, OF_KEYS=of_keys)  # type: ignore[index]
    return results


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:5], *output)
    ctx.rate_and_scale = inputs[5:]


def _backpropagate(run: Callable[..., Any], ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
    gradient: Tensor = gradients[0].contiguous()
    *five, out, lse = ctx.saved_tensors
    delta = (gradient.float() * out.float()).sum(dim=-1)
    return *run(*five, gradient, lse, delta, *ctx.rate_and_scale), None, None, None, None


class _EagerAttention(torch.autograd.Function):
    """The kernels as an autograd function, for blocks that are not compiled: it does not import torch's compiler."""

    forward = staticmethod(_run)
    setup_context = staticmethod(_setup_context)
    backward = staticmethod(partial(_backpropagate, _run_backward))


# compiled blocks keep operators whole, and make their inputs contiguous
_compiled_attention = torch.library.custom_op(
    "gpt_cli::dropout_attention", _run, mutates_args=(), tags=(torch.Tag.needs_exact_strides,)
)
_compiled_backward = torch.library.custom_op(
    "gpt_cli::dropout_attention_backward", _run_backward, mutates_args=(), tags=(torch.Tag.needs_exact_strides,)
)
_compiled_attention.register_autograd(partial(_backpropagate, _compiled_backward), setup_context=_setup_context)


@_compiled_attention.register_fake
def _(queries: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(queries), queries.new_empty(queries.shape[:3], dtype=torch.float32)


@_compiled_backward.register_fake
def _(queries: Tensor, keys: Tensor, values: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(queries), torch.empty_like(keys), torch.empty_like(values)


def dropout_attention(queries: Tensor, keys: Tensor, values: Tensor, masks: ToDraw, scale: float) -> Tensor:
    """Compute softmax(queries keysᵀ * scale), with dropout, times values: [B, H, T, K] each -> [B, H, T, K].

    The mask is `masks.keep("weights", [B, H, T, T])`; `masks.keys` must be a tensor on the device.
    """
    three = (each.to(values.dtype).contiguous() for each in (queries, keys, values))
    assert isinstance(masks.keys, Tensor)
    first = masks.first_sequence
    if not isinstance(first, Tensor):  # filled on the device, because a recorded step may not copy from the host
        first = torch.full((), first, dtype=torch.int32, device=values.device)
    compute = _compiled_attention if torch.compiler.is_compiling() else _EagerAttention.apply
    return compute(*three, masks.keys[0], first, masks.rate, scale)[0]
