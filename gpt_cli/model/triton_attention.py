"""Causal attention with dropout as Triton kernels, which never store attention weights: Dao 2023 (FlashAttention-2).

`attend` in attention.py computes the same attention with torch. Dropout masks equal those of dropout.py. Needs Triton.
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
from gpt_cli.model.dropout import DropMasks

_FIRST, _SECOND = (tl.constexpr(multiplier) for multiplier in MULTIPLIERS)

_PRECISION = tl.constexpr("ieee" if torch.version.hip else "tf32x3")  # of float32; AMD's compiler has no tf32x3
_JIT_OPTIONS: Any = {"do_not_specialize": ["bound"], "do_not_specialize_on_alignment": ["keys"]}


@triton.jit
def _mix(words):
    words ^= words >> 16
    words *= tl.full((), _FIRST, tl.uint32)
    words ^= words >> 15
    words *= tl.full((), _SECOND, tl.uint32)
    return words ^ (words >> 16)


@triton.jit
def _keep_mask(keys, first, bound, head, rows, start, H, T, N: tl.constexpr):
    """Draw a part of a head's dropout mask, for M `rows` (queries) and N columns (keys) from `start`: bool [M, N].

    Each random word of the stream `keys` decides two columns, its lower half the even one: halves >= `bound` give True.
    """
    base = (tl.load(first) + head // H) * (H * T * (T // 2)) + ((head % H) * T + rows) * (T // 2)
    base = (base + tl.load(keys)).to(tl.uint32)
    words = _mix(base[:, None] + (start // 2 + tl.arange(0, N // 2)).to(tl.uint32)[None, :])
    words = _mix(words + tl.load(keys + 1).to(tl.uint32))
    low, high = (words << 16).to(tl.int32, bitcast=True), words.to(tl.int32, bitcast=True)
    return tl.interleave(low, high) >= bound


@triton.jit
def _dot(a, b):
    return tl.dot(a, b, input_precision=_PRECISION)


@triton.jit
def _of_head(tensor, head, H, sequence_stride, head_stride):
    """Return a pointer to the first number of a head of one sequence; `head` counts the heads of all sequences."""
    return tensor + (head // H).to(tl.int64) * sequence_stride + (head % H) * head_stride


@triton.jit
def _tile(source, rows, stride, T, D: tl.constexpr, PAD: tl.constexpr):
    """Load rows of a head, [rows, PAD], with zeros beyond the T tokens and the head size D."""
    size = tl.arange(0, PAD)
    at = rows[:, None] * stride + size[None, :]
    return tl.load(source + at, mask=(rows[:, None] < T) & (size[None, :] < D), other=0.0)


@triton.jit
def _store(target, numbers, rows, head, H, T, D: tl.constexpr, PAD: tl.constexpr):
    """Store `numbers`, rows of a head, in `target`, which is laid out as [B, T, H, D]; here, D is the head size."""
    size = tl.arange(0, PAD)
    at = _of_head(target, head, H, T * H * D, D) + rows[:, None] * (H * D) + size[None, :]
    tl.store(at, numbers.to(target.dtype.element_ty), mask=(rows[:, None] < T) & (size[None, :] < D))


@triton.jit
def _scores(q, k, rows, columns, scale):
    """Compute scores, divided by ln 2, so that weights are powers of 2, which a GPU computes in one instruction."""
    scores = _dot(q, tl.trans(k)) * (scale * 1.4426950408889634)  # 1 / ln 2
    return tl.where(columns[None, :] <= rows[:, None], scores, float("-inf"))


@triton.jit(**_JIT_OPTIONS)
def _forward(
    Q, K, V, OUT, LSE, keys, first, bound, inverse, scale, H, T, qb, qh, qt, kb, kh, kt, vb, vh, vt,
    D: tl.constexpr, PAD: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    block, head = tl.program_id(0), tl.program_id(1)
    rows = block * N + tl.arange(0, N)
    K, V = _of_head(K, head, H, kb, kh), _of_head(V, head, H, vb, vh)
    q = _tile(_of_head(Q, head, H, qb, qh), rows, qt, T, D, PAD)
    best = tl.full((N,), float("-inf"), tl.float32)
    total = tl.zeros((N,), tl.float32)
    out = tl.zeros((N, PAD), tl.float32)
    for start in range(0, (block + 1) * N, N):
        columns = start + tl.arange(0, N)
        scores = _scores(q, _tile(K, columns, kt, T, D, PAD), rows, columns, scale)
        highest = tl.maximum(best, tl.max(scores, 1))
        p, shrink = tl.exp2(scores - highest[:, None]), tl.exp2(best - highest)
        dropped = tl.where(_keep_mask(keys, first, bound, head, rows, start, H, T, N), p, 0.0)
        v = _tile(V, columns, vt, T, D, PAD)
        out = out * shrink[:, None] + _dot(dropped.to(v.dtype), v)
        total, best = total * shrink + tl.sum(p, 1), highest
    _store(OUT, out * (inverse / total)[:, None], rows, head, H, T, D, PAD)
    tl.store(LSE + head * T + rows, best + tl.log2(total), mask=rows < T)


@triton.jit
def _gradients(
    q, k, v, g, lse, delta, rows, start, keys, first, bound, inverse, scale, head, H, T, N: tl.constexpr
):  # fmt: skip
    """Compute the gradients of scores, and the weights after dropout, for rows (queries) and N keys from `start`."""
    p = tl.exp2(_scores(q, k, rows, start + tl.arange(0, N), scale) - lse[:, None])
    times = tl.where(_keep_mask(keys, first, bound, head, rows, start, H, T, N), inverse, 0.0)
    return p * (_dot(g, tl.trans(v)) * times - delta[:, None]) * scale, p * times


@triton.jit(**_JIT_OPTIONS)
def _backward_queries(
    Q, K, V, OUT, LSE, G, DELTA, DQ, keys, first, bound, inverse, scale, H, T,
    qb, qh, qt, kb, kh, kt, vb, vh, vt, gb, gh, gt, D: tl.constexpr, PAD: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of queries, and DELTA, the dot product of each output and its gradient."""
    block, head = tl.program_id(0), tl.program_id(1)
    rows = block * N + tl.arange(0, N)
    K, V = _of_head(K, head, H, kb, kh), _of_head(V, head, H, vb, vh)
    Q, G = _of_head(Q, head, H, qb, qh), _of_head(G, head, H, gb, gh)
    q, g = _tile(Q, rows, qt, T, D, PAD), _tile(G, rows, gt, T, D, PAD)
    out = _tile(_of_head(OUT, head, H, T * H * D, D), rows, H * D, T, D, PAD)
    delta = tl.sum(g.to(tl.float32) * out.to(tl.float32), 1)
    tl.store(DELTA + head * T + rows, delta, mask=rows < T)
    lse = tl.load(LSE + head * T + rows, mask=rows < T, other=float("inf"))
    gradient = tl.zeros((N, PAD), tl.float32)
    for start in range(0, (block + 1) * N, N):
        columns = start + tl.arange(0, N)
        k, v = _tile(K, columns, kt, T, D, PAD), _tile(V, columns, vt, T, D, PAD)
        of_scores, _ = _gradients(
            q, k, v, g, lse, delta, rows, start, keys, first, bound, inverse, scale, head, H, T, N
        )  # fmt: skip
        gradient += _dot(of_scores.to(k.dtype), k)
    _store(DQ, gradient, rows, head, H, T, D, PAD)


@triton.jit(**_JIT_OPTIONS)
def _backward_keys(
    Q, K, V, LSE, G, DELTA, DK, DV, keys, first, bound, inverse, scale, H, T,
    qb, qh, qt, kb, kh, kt, vb, vh, vt, gb, gh, gt, D: tl.constexpr, PAD: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of keys and their values."""
    block, head = tl.program_id(0), tl.program_id(1)
    columns = block * N + tl.arange(0, N)
    Q, G = _of_head(Q, head, H, qb, qh), _of_head(G, head, H, gb, gh)
    K, V = _of_head(K, head, H, kb, kh), _of_head(V, head, H, vb, vh)
    k, v = _tile(K, columns, kt, T, D, PAD), _tile(V, columns, vt, T, D, PAD)
    of_keys, of_values = tl.zeros((N, PAD), tl.float32), tl.zeros((N, PAD), tl.float32)
    for start in range(block * N, T, N):
        rows = start + tl.arange(0, N)
        q, g = _tile(Q, rows, qt, T, D, PAD), _tile(G, rows, gt, T, D, PAD)
        lse = tl.load(LSE + head * T + rows, mask=rows < T, other=float("inf"))
        delta = tl.load(DELTA + head * T + rows, mask=rows < T, other=0.0)
        of_scores, weights = _gradients(
            q, k, v, g, lse, delta, rows, block * N, keys, first, bound, inverse, scale, head, H, T, N
        )  # fmt: skip
        of_keys += _dot(tl.trans(of_scores).to(q.dtype), q)
        of_values += _dot(tl.trans(weights).to(g.dtype), g)
    _store(DK, of_keys, columns, head, H, T, D, PAD)
    _store(DV, of_values, columns, head, H, T, D, PAD)


def _launch(queries: Tensor, masks: tuple[Tensor, Tensor], rate: float) -> tuple[Any, list[Any], dict[str, int]]:
    """Return what a kernel launch needs: grid of programs, arguments (`masks`, bound, inverse), and constants."""
    B, H, T, D = queries.shape
    pad = max(16, triton.next_power_of_2(D))
    # the largest blocks that an H100 computes in its registers; twice the warps compute parts twice (note 0069)
    rows = (64 if pad <= 64 else 32) * 2 // queries.element_size()
    sizes = {"D": D, "PAD": pad, "N": rows, "num_warps": 4}
    bound = (round(rate * 2**16) - 2**15) * 2**16
    return (triton.cdiv(T, rows), B * H), [*masks, bound, 1 / (1 - rate)], sizes


def _strides(*tensors: Tensor) -> list[int]:
    """Return the strides of sequences, heads and tokens of each tensor [B, H, T, K]."""
    return [stride for tensor in tensors for stride in tensor.stride()[:3]]


def _new(like: Tensor) -> Tensor:
    """Return a new tensor [B, H, T, K] that lies in memory as [B, T, H, K], which `join_heads` need not copy."""
    return like.new_empty(like.transpose(1, 2).shape).transpose(1, 2)


def _run(
    queries: Tensor, keys: Tensor, values: Tensor, halves: Tensor, first: Tensor, rate: float, scale: float
) -> tuple[Tensor, Tensor]:
    grid, rest, sizes = _launch(queries, (halves, first), rate)
    out, lse = _new(queries), queries.new_empty(queries.shape[:3], dtype=torch.float32)
    numbers = [*rest, scale, *queries.shape[1:3], *_strides(queries, keys, values)]
    with torch.accelerator.device_index(queries.device.index):
        _forward[grid](queries, keys, values, out, lse, *numbers, **sizes)  # type: ignore[index]
    return out, lse


def _run_backward(
    queries: Tensor, keys: Tensor, values: Tensor, halves: Tensor, first: Tensor, out: Tensor, lse: Tensor,
    gradient: Tensor, rate: float, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    grid, rest, sizes = _launch(queries, (halves, first), rate)
    of_queries, of_keys, of_values = _new(queries), _new(keys), _new(values)
    three, delta = (queries, keys, values), torch.empty_like(lse)
    numbers = [*rest, scale, *queries.shape[1:3], *_strides(*three, gradient)]
    with torch.accelerator.device_index(queries.device.index):
        _backward_queries[grid](*three, out, lse, gradient, delta, of_queries, *numbers, **sizes)  # type: ignore[index]
        _backward_keys[grid](*three, lse, gradient, delta, of_keys, of_values, *numbers, **sizes)  # type: ignore[index]
    return of_queries, of_keys, of_values


def _with_rows(tensor: Tensor) -> Tensor:
    """Return `tensor`, or a copy if its vectors [K] are not contiguous in memory."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:5], *output)
    ctx.rate_and_scale = inputs[5:]


def _backpropagate(run: Callable[..., Any], ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
    return *run(*ctx.saved_tensors, _with_rows(gradients[0]), *ctx.rate_and_scale), None, None, None, None


class _EagerAttention(torch.autograd.Function):
    """Autograd function of the kernels for blocks that are not compiled; its use does not import torch's compiler."""

    forward = staticmethod(_run)
    setup_context = staticmethod(_setup_context)
    backward = staticmethod(partial(_backpropagate, _run_backward))


# compiled blocks keep operators whole, and leave the strides of their inputs as they are
_compiled_attention = torch.library.custom_op(
    "gpt_cli::dropout_attention", _run, mutates_args=(), tags=(torch.Tag.needs_exact_strides,)
)
_compiled_backward = torch.library.custom_op(
    "gpt_cli::dropout_attention_backward", _run_backward, mutates_args=(), tags=(torch.Tag.needs_exact_strides,)
)
_compiled_attention.register_autograd(partial(_backpropagate, _compiled_backward), setup_context=_setup_context)


@_compiled_attention.register_fake
def _(queries: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _new(queries), queries.new_empty(queries.shape[:3], dtype=torch.float32)


@_compiled_backward.register_fake
def _(queries: Tensor, keys: Tensor, values: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _new(queries), _new(keys), _new(values)


def dropout_attention(queries: Tensor, keys: Tensor, values: Tensor, masks: DropMasks, scale: float) -> Tensor:
    """Compute dropout(softmax(queries keysᵀ * scale)) values, with a causal mask: [B, H, T, K] each -> [B, H, T, K].

    The dropout mask is that of `masks.keep("weights", ...)`. Its keys and first sequence must be on the device, T even.
    """
    three = (_with_rows(each.to(values.dtype)) for each in (queries, keys, values))
    assert queries.shape[2] % 2 == 0
    assert isinstance(masks.keys, Tensor)
    assert isinstance(masks.first_sequence, Tensor)
    compute = _compiled_attention if torch.compiler.is_compiling() else _EagerAttention.apply
    return compute(*three, masks.keys[0], masks.first_sequence, masks.rate, scale)[0]
