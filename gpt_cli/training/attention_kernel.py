"""Choose, by a trial, whether attention with dropout runs as a Triton kernel."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

import torch
from torch import Tensor

from gpt_cli.common.host import Notify
from gpt_cli.common.machine.devices import autocast, product_dtype, supports, synchronize
from gpt_cli.model.attention import Kernel, attend, causal_bias
from gpt_cli.model.dropout import ToDraw
from gpt_cli.training.state import TrainingState

# shares of the largest number by which results may differ, as sums have other orders
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
_FASTER = 1.15  # times as fast as the plain form, or the kernel is not worth other digits
_MOST_WEIGHTS = 2**31  # of a sequence, which the kernel counts in int32


def choose_kernel(state: TrainingState, warn: Notify) -> None:
    """Let attention with dropout use the Triton kernel if its results agree and it is faster on the run's shapes.

    If blocks are compiled, the kernel must be faster than compiled attention. A run that continues uses the kernel if
    it did before, whatever its speed, so that its results are those of a run without a stop; `warn` receives a line if
    it cannot.
    """
    sizes, train, progress = state.config.model, state.config.train, state.progress
    begins, kernel = not progress.step, None
    used = not begins and "attention" in progress.environment
    possible = state.ranks.size == 1 and supports(state.device, "graphs") and bool(find_spec("triton"))
    fits = sizes.query_size == sizes.value_size and sizes.num_heads * sizes.context_length**2 < _MOST_WEIGHTS
    if possible and sizes.dropout and fits and (begins or used):
        shape = (train.sequences_at_once, sizes.num_heads, sizes.context_length, sizes.query_size)
        with contextlib.suppress(Exception):  # whatever Triton, its compiler or the driver raise
            from gpt_cli.model.triton_attention import dropout_attention

            agrees, plain_seconds, kernel_seconds = compare_with_plain(
                dropout_attention, shape, train.dtype, state.device, sizes.dropout, compiled=train.compile == "on"
            )
            if agrees and (used or plain_seconds >= _FASTER * kernel_seconds):
                kernel = dropout_attention
    if used and kernel is None:
        warn("not bit-exact from here on: attention triton -> plain")
    state.model.use_kernel(kernel)
    others = {name: value for name, value in progress.environment.items() if name != "attention"}
    state.progress = replace(progress, environment=others | ({"attention": "triton"} if kernel else {}))


def compare_with_plain(
    kernel: Kernel, shape: Sequence[int], dtype: str, device: torch.device, rate: float, *, compiled: bool = False
) -> tuple[bool, float, float]:
    """Compute attention with dropout by `attend` and by `kernel`, forward and backward, on inputs [B, H, T, K].

    With `compiled`, torch compiles `attend` together with the draw of its mask, as in compiled blocks. Returns whether
    outputs and gradients agree, then the seconds of both.
    """
    number_type, scale = product_dtype(dtype), shape[-1] ** -0.5
    generator = torch.Generator().manual_seed(0)
    B, H, T, K = shape
    drawn = (torch.randn(B, T, H, K, generator=generator).to(device, number_type) for _ in range(4))
    inputs = [each.transpose(1, 2) for each in drawn]  # the layout of projections
    first = torch.ones((), dtype=torch.int32, device=device)
    masks = ToDraw(torch.arange(6, dtype=torch.int32).view(3, 2).to(device), first, rate)

    def plain(queries: Tensor, keys: Tensor, values: Tensor, masks: ToDraw, scale: float) -> Tensor:
        keep = masks.keep("weights", (B, H, T, T), device).flatten(0, 1)  # [B * H, T, T]
        flat = queries.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1)
        return attend(*flat, causal_bias(queries), scale, rate, keep)[0].view(*shape)

    def run(way: Kernel) -> tuple[float, list[Tensor]]:
        leaves = [each.clone().requires_grad_() for each in inputs[:3]]
        synchronize(device)
        started = time.perf_counter()
        with autocast(device, dtype):
            out = way(leaves[0], leaves[1], leaves[2], masks, scale)
        gradients = torch.autograd.grad(out, leaves, inputs[3].to(out.dtype))
        synchronize(device)
        return time.perf_counter() - started, [out.detach(), *gradients]

    if compiled:
        plain = torch.compile(plain)
    (_, expected), (_, results) = run(plain), run(kernel)  # which compiles
    pairs = zip(results, expected, strict=True)
    agrees = all(bool((one - other).abs().max() <= _TOLERANCE[number_type] * other.abs().max()) for one, other in pairs)
    return agrees, min(run(plain)[0] for _ in range(3)), min(run(kernel)[0] for _ in range(3))
