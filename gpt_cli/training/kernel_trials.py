"""Choose faster forms of parts of a step by trials: attention with dropout as a Triton kernel, and a compiled loss."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TypeVar

import torch
from torch import Tensor

from gpt_cli.common.host import Notify
from gpt_cli.common.machine.devices import autocast, free_memory, product_dtype, supports, synchronize
from gpt_cli.model.attention import Kernel, attend, causal_bias
from gpt_cli.model.dropout import ToDraw
from gpt_cli.training.batches import PackedBatches
from gpt_cli.training.state import TrainingState
from gpt_cli.training.validation import cross_entropy

# shares of the largest number by which results may differ, as sums have other orders
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
_FASTER = 1.15  # times as fast as the plain form, or the other is not worth other digits
_MOST_WEIGHTS = 2**31  # of a sequence, which the kernel counts in int32

_Form = TypeVar("_Form", bound=Callable[..., Tensor])
_Trial = tuple[_Form, bool, float, float]  # a form, whether it agrees with the plain one, the seconds of plain and form


def choose_kernels(state: TrainingState, warn: Notify) -> None:
    """Let a step use a Triton kernel for attention with dropout, and a compiled loss, if trials are in favour.

    A trial computes a part of the step on the run's shapes: results must agree, and the time must fall. If blocks are
    compiled, the kernel must be faster than compiled attention, and the loss is tried too. A run that continues uses
    what it used before, whatever the speed, so that its results are those of a run without a stop; `warn` receives a
    line if it cannot.
    """
    sizes, train, device = state.config.model, state.config.train, state.device
    shape = (train.sequences_at_once, sizes.num_heads, sizes.context_length, sizes.query_size)
    compiled = train.compile == "on"

    def attention() -> _Trial[Kernel]:
        from gpt_cli.model.triton_attention import dropout_attention

        times = compare_with_plain(dropout_attention, shape, train.dtype, device, sizes.dropout, compiled=compiled)
        return dropout_attention, *times

    def loss() -> _Trial[Callable[[Tensor, Tensor], Tensor]]:
        form = torch.compile(cross_entropy)
        return form, *compare_losses(form, shape[0], shape[2], state.model.vocab_size, train.dtype, device)

    fits = sizes.query_size == sizes.value_size and sizes.num_heads * sizes.context_length**2 < _MOST_WEIGHTS
    has_kernel = bool(sizes.dropout) and fits and bool(find_spec("triton"))
    state.model.use_kernel(_choose(state, "attention", "triton", has_kernel, attention, warn))
    # on an H100, the compiled loss took the memory of the logits in float32 once more (note 0004)
    logits_bytes = 4 * shape[0] * shape[2] * state.model.vocab_size
    free = free_memory(device) if compiled and device.type != "cpu" else None
    has_room = free is None or free >= state.costs.training_bytes + logits_bytes
    has_loss = compiled and has_room and not isinstance(state.batches, PackedBatches)
    state.cross_entropy = _choose(state, "loss", "compiled", has_loss, loss, warn) or cross_entropy


def _choose(
    state: TrainingState, part: str, form: str, possible: bool, trial: Callable[[], _Trial[_Form]], warn: Notify
) -> _Form | None:
    """Return what `trial` tries if the run shall use this `form` of a `part`, else None; record the choice."""
    begins, progress = not state.progress.step, state.progress
    used, chosen = not begins and part in progress.environment, None
    if possible and (begins or used) and state.ranks.size == 1 and supports(state.device, "graphs"):
        with contextlib.suppress(Exception):  # whatever Triton, the compiler or the driver raise
            candidate, agrees, plain_seconds, seconds = trial()
            if agrees and (used or plain_seconds >= _FASTER * seconds):
                chosen = candidate
    if used and chosen is None:
        warn(f"not bit-exact from here on: {part} {form} -> plain")
    others = {name: value for name, value in progress.environment.items() if name != part}
    state.progress = replace(progress, environment=others | ({part: form} if chosen else {}))
    return chosen


def compare_with_plain(
    kernel: Kernel, shape: Sequence[int], dtype: str, device: torch.device, rate: float, *, compiled: bool = False
) -> tuple[bool, float, float]:
    """Compute attention with dropout by `attend` and by `kernel`, forward and backward, on inputs [B, H, T, K].

    With `compiled`, torch compiles `attend` together with the draw of its mask, as in compiled blocks. Returns whether
    outputs and gradients agree, then the seconds of both.
    """
    generator, scale = torch.Generator().manual_seed(0), shape[-1] ** -0.5
    B, H, T, K = shape
    drawn = (torch.randn(B, T, H, K, generator=generator).to(device, product_dtype(dtype)) for _ in range(4))
    *inputs, gradient = (each.transpose(1, 2) for each in drawn)  # the layout of projections
    first = torch.ones((), dtype=torch.int32, device=device)
    masks = ToDraw(torch.arange(6, dtype=torch.int32).view(3, 2).to(device), first, rate)

    def plain(queries: Tensor, keys: Tensor, values: Tensor, masks: ToDraw, scale: float) -> Tensor:
        keep = masks.keep("weights", (B, H, T, T), device).flatten(0, 1)  # [B * H, T, T]
        flat = queries.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1)
        return attend(*flat, causal_bias(queries), scale, rate, keep)[0].view(*shape)

    ways = (torch.compile(plain) if compiled else plain, kernel)
    return _compare([lambda *leaves, way=way: way(*leaves, masks, scale) for way in ways], inputs, gradient, dtype)


def compare_losses(
    form: Callable[[Tensor, Tensor], Tensor], B: int, T: int, V: int, dtype: str, device: torch.device
) -> tuple[bool, float, float]:
    """Compute the loss of logits [B, T, V] by `cross_entropy` and by `form`, forward and backward.

    Returns whether losses and gradients agree, then the seconds of both.
    """
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(B, T, V, generator=generator).to(device, product_dtype(dtype))
    targets = torch.randint(V, (B, T), generator=generator).to(device)
    gradient = torch.ones((), device=device)
    return _compare(
        [lambda leaf, way=way: way(leaf, targets) for way in (cross_entropy, form)], [logits], gradient, dtype
    )


def _compare(
    ways: Sequence[Callable[..., Tensor]], inputs: Sequence[Tensor], gradient: Tensor, dtype: str
) -> tuple[bool, float, float]:
    """Run two ways to compute the same from `inputs`, forward and backward from the output's `gradient`.

    Returns whether outputs and gradients agree, then the seconds of both.
    """
    device = gradient.device

    def run(way: Callable[..., Tensor]) -> tuple[float, list[Tensor]]:
        leaves = [each.clone().requires_grad_() for each in inputs]
        synchronize(device)
        started = time.perf_counter()
        with autocast(device, dtype):
            out = way(*leaves)
        gradients = torch.autograd.grad(out, leaves, gradient.to(out.dtype))
        synchronize(device)
        return time.perf_counter() - started, [out.detach(), *gradients]

    (_, expected), (_, results) = (run(way) for way in ways)  # which compiles
    tolerance, pairs = _TOLERANCE[product_dtype(dtype)], zip(results, expected, strict=True)
    agrees = all(bool((one - other).abs().max() <= tolerance * other.abs().max()) for one, other in pairs)
    plain_seconds, seconds = (min(run(way)[0] for _ in range(3)) for way in ways)
    return agrees, plain_seconds, seconds
