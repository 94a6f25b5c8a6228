"""The Triton kernel beside its readable twin, computed by Triton's interpreter on the CPU."""

from __future__ import annotations

import pytest
import torch

from gpt_cli.model.attention import attend, causal_bias
from gpt_cli.model.dropout import ToDraw, drop_keys, key_halves


@pytest.mark.parametrize(
    ("shape", "rate", "dtype", "tolerance"),
    [
        ((2, 3, 37, 16), 0.3, torch.float32, 2e-6),
        ((2, 2, 130, 24), 0.1, torch.float32, 2e-6),  # three blocks of queries; a head size that is no power of two
        ((1, 1, 33, 96), 0.5, torch.float32, 2e-6),  # smaller blocks
        ((1, 2, 64, 64), 0.5, torch.float16, 1e-3),  # the interpreter has no bfloat16
    ],
)
def test_output_and_gradients_are_those_of_the_twin_with_the_same_mask(
    shape: tuple[int, ...], rate: float, dtype: torch.dtype, tolerance: float
) -> None:
    pytest.importorskip("triton", reason="a gigabyte; make test-long installs it")
    from gpt_cli.model.triton_attention import dropout_attention

    generator, (B, H, T, K) = torch.Generator().manual_seed(0), shape
    keys = key_halves(torch.from_numpy(drop_keys(1, 2, 1).view("int64")))[0]
    masks, scale = ToDraw(keys, 5, rate), K**-0.5
    keep = masks.keep("weights", (B, H, T, T), torch.device("cpu"))
    *inputs, gradient = (torch.randn(shape, generator=generator).to(dtype) for _ in range(4))
    leaves = [each.clone().requires_grad_() for each in inputs]
    exact = [each.double().requires_grad_() for each in inputs]
    out = dropout_attention(leaves[0], leaves[1], leaves[2], masks, scale)
    flat = [each.flatten(0, 1) for each in exact]
    bias = causal_bias(exact[0])
    expected, _ = attend(flat[0], flat[1], flat[2], bias, scale, rate, keep.flatten(0, 1))
    results = [out, *torch.autograd.grad(out, leaves, gradient)]
    twins = [expected.view(shape), *torch.autograd.grad(expected.view(shape), exact, gradient.double())]
    for result, twin in zip(results, twins, strict=True):
        assert (result.double() - twin).abs().max() <= tolerance * twin.abs().max()
