"""Decide by trials whether a step uses a Triton kernel for attention with dropout, and a compiled loss."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from gpt_cli.common.host import Notify
from gpt_cli.common.machine.devices import (
    autocast,
    beside,
    free_memory,
    product_dtype,
    record_graph,
    supports,
    synchronize,
)
from gpt_cli.model.attention import Kernel, attend, causal_bias
from gpt_cli.model.dropout import DropMasks, drop_keys, key_halves
from gpt_cli.training.batches import PackedBatches
from gpt_cli.training.state import TrainingState
from gpt_cli.training.validation import cross_entropy

# shares by which numbers may differ, as sums have other orders: of each number, or of the largest in so many tokens
_TOLERANCE, _TOKENS_TOGETHER = {torch.float32: 1e-4, torch.bfloat16: 3e-2}, 32
_FASTER = 1.15  # times as fast as the plain form; a smaller gain is not worth other digits
_MOST_WEIGHTS = 2**31  # of a sequence, which the kernel counts in int32

_Trial = tuple[Callable[..., Tensor], bool, float, float]  # a form, whether it agrees, the seconds of plain and form


def choose_kernels(state: TrainingState, warn: Notify) -> None:
    """Try a Triton kernel for attention with dropout, and a compiled loss; let steps use each that pays.

    A trial runs plain and new code on the run's shapes. New code pays if its results are equal, within a tolerance, and
    it is at least 1.15 times as fast. The loss has a trial only if blocks are compiled; the kernel then competes with
    compiled attention. A resumed run repeats its choice; `warn` receives a line if that choice no longer works.
    """
    sizes, train, device = state.config.model, state.config.train, state.device
    shape = (train.sequences_at_once, sizes.num_heads, sizes.context_length, sizes.query_size)
    compiled, begins, packed = train.compile == "on", not state.progress.step, isinstance(state.batches, PackedBatches)

    def attention() -> _Trial:
        from gpt_cli.model.triton_attention import dropout_attention

        rival = compiled and begins  # the speed of a resumed run decides nothing
        times = compare_with_plain(dropout_attention, shape, train.dtype, device, sizes.dropout, compiled=rival)
        return dropout_attention, *times

    def loss() -> _Trial:
        V, generator = state.model.vocab_size, torch.Generator().manual_seed(0)
        logits = torch.randn(shape[0], shape[2], V, generator=generator).to(device, product_dtype(train.dtype))
        targets = torch.randint(V, logits.shape[:2], generator=generator).to(device)
        form = torch.compile(cross_entropy, fullgraph=True)  # raises where torch would silently use the plain form
        ways = [partial(way, targets=targets) for way in (cross_entropy, form)]
        return form, *_compare(ways, [logits], torch.ones((), device=device), train.dtype)

    fits = sizes.query_size == sizes.value_size and sizes.num_heads * sizes.context_length**2 < _MOST_WEIGHTS
    fits = fits and sizes.context_length % 2 == 0 and not packed and None in sizes.windows
    has_kernel = bool(sizes.dropout) and fits and bool(find_spec("triton"))
    state.model.use_kernel(_choose(state, "attention", "triton", has_kernel, attention, warn))
    has_loss = compiled and not packed and train.num_teachers < 2
    if has_loss and begins and (free := free_memory(device)) is not None:
        # on an H100, the compiled loss took the memory of the logits in float32 once more (note 0004)
        logits_bytes = 4 * shape[0] * shape[2] * state.model.vocab_size
        allocated = sum(tensor.nbytes for tensor in state.optimizer.changing())
        has_loss = free >= state.costs.training_bytes - allocated + logits_bytes
    state.cross_entropy = _choose(state, "loss", "compiled", has_loss, loss, warn) or cross_entropy


def _choose(
    state: TrainingState, part: str, form: str, possible: bool, trial: Callable[[], _Trial], warn: Notify
) -> Callable[..., Tensor] | None:
    """Run `trial` for `part` (attention or loss); return the tried function if it pays, else None; record the choice.

    If not `possible`, no trial runs. `form` (triton or compiled) is the function's name in the record and in warnings.
    """
    progress = state.progress
    begins = not progress.step and state.config.train.graph != "off"  # a trial times what a graph would replay
    used, chosen = bool(progress.step) and part in progress.environment, None
    if possible and (begins or used) and state.ranks.size == 1 and supports(state.device, "graphs"):
        with contextlib.suppress(Exception):  # whatever Triton, the compiler or the driver raise
            candidate, agrees, plain_seconds, seconds = trial()
            if agrees and (used or plain_seconds >= _FASTER * seconds):
                chosen = candidate
    if used and chosen is None:
        warn(f"not bit-exact from here on: {part} {form} -> plain")
    _note(state, part, form if chosen else None)
    return chosen


def drop_kernel(state: TrainingState) -> None:
    """Stop using the Triton kernel: let torch compute attention again, and record this choice."""
    state.model.use_kernel(None)
    _note(state, "attention", None)


def _note(state: TrainingState, part: str, form: str | None) -> None:
    others = {name: value for name, value in state.progress.environment.items() if name != part}
    state.progress = replace(state.progress, environment=others | ({part: form} if form else {}))


def compare_with_plain(
    kernel: Kernel, shape: Sequence[int], dtype: str, device: torch.device, rate: float, *, compiled: bool = False
) -> tuple[bool, float, float]:
    """Compare `kernel` with the plain function `attend`: attention with dropout `rate`, forward and backward.

    Inputs are random, [B, H, T, K] = `shape`. If `compiled`, torch compiles both functions, `attend` together with the
    code that draws its mask. Returns whether outputs and gradients agree, the seconds of `attend`, those of `kernel`.
    """
    generator, scale = torch.Generator().manual_seed(0), shape[-1] ** -0.5
    B, H, T, K = shape
    drawn = (torch.randn(B, T, H, K, generator=generator).to(device, product_dtype(dtype)) for _ in range(4))
    *inputs, gradient = (each.transpose(1, 2) for each in drawn)  # the layout of projections
    first = torch.full((), 3, dtype=torch.int32, device=device)
    keys = key_halves(torch.from_numpy(drop_keys(0, 0, 1).view(np.int64)))[0].to(device)
    masks = DropMasks(keys, first, rate)

    def plain(queries: Tensor, keys: Tensor, values: Tensor, masks: DropMasks, scale: float) -> Tensor:
        keep = masks.keep("weights", (B, H, T, T), device).flatten(0, 1)  # [B * H, T, T]
        flat = queries.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1)
        return attend(*flat, causal_bias(queries), scale, rate, keep)[0].view(*shape)

    ways = [torch.compile(way) if compiled else way for way in (plain, kernel)]
    return _compare(
        [lambda *leaves, way=way: way(*leaves, masks, scale) for way in ways], inputs, gradient, dtype, _TOKENS_TOGETHER
    )


def _compare(
    ways: Sequence[Callable[..., Tensor]],
    inputs: Sequence[Tensor],
    gradient: Tensor,
    dtype: str,
    num_tokens: int | None = None,
) -> tuple[bool, float, float]:
    """Run both functions in `ways` on `inputs`, forward and backward from the output's `gradient`, and compare them.

    Numbers agree if they differ by at most a fraction, which depends on the dtype, of the first function's number or,
    with `num_tokens`, of its largest number in a group of `num_tokens` tokens of [B, H, T, K]. Returns whether outputs
    and gradients agree, then the seconds of each function, replayed as a device graph if the device supports graphs.
    """
    device = gradient.device

    def run(way: Callable[..., Tensor]) -> list[Tensor]:
        leaves = [each.detach().requires_grad_() for each in inputs]
        with autocast(device, dtype):
            out = way(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, gradient.to(out.dtype))]

    def seconds_of(way: Callable[..., Tensor]) -> float:
        again: Callable[[], object] = partial(run, way)
        if supports(device, "graphs"):
            with beside(device):
                again()
                again = record_graph(device, again)[0]
        seconds = []
        for _ in range(4):  # the first one takes longer
            started = time.perf_counter()
            again()
            synchronize(device)
            seconds.append(time.perf_counter() - started)
        return min(seconds)

    expected, results = (run(way) for way in ways)  # which compiles
    pairs = zip(results, expected, strict=True)
    if num_tokens is None:
        agrees = all(torch.allclose(a, b, rtol=_TOLERANCE[a.dtype], atol=0) for a, b in pairs)
    else:
        parts = (zip(a.split(num_tokens, -2), b.split(num_tokens, -2), strict=True) for a, b in pairs)
        agrees = all(
            bool((a - b).abs().max() <= _TOLERANCE[a.dtype] * b.abs().max()) for a, b in chain.from_iterable(parts)
        )
    plain_seconds, seconds = (seconds_of(way) for way in ways)
    return agrees, plain_seconds, seconds
