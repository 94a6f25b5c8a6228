"""The Triton kernel beside its readable twin, computed by Triton's interpreter on the CPU."""

import functools
import os
import subprocess
import sys

import pytest
import torch

from gpt_cli.config import ModelConfig
from gpt_cli.model import GPT
from gpt_cli.model.attention import attend, causal_bias
from gpt_cli.model.dropout import DropMasks, drop_keys, key_halves


@pytest.mark.parametrize(
    ("shape", "rate", "dtype", "tolerance"),
    [
        ((2, 3, 38, 16), 0.3, torch.float32, 2e-6),
        ((2, 2, 130, 24), 0.1, torch.float32, 2e-6),  # three blocks of queries; a head size that is no power of two
        ((1, 1, 34, 96), 0.5, torch.float32, 2e-6),  # smaller blocks
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
    masks, scale = DropMasks(keys, torch.tensor(5, dtype=torch.int32), rate), K**-0.5
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


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # of torch itself
def test_blocks_train_with_the_kernel_as_they_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled block stays one graph, with the kernel as an operator of it, for any sequence and any keys."""
    pytest.importorskip("triton", reason="a gigabyte; make test-long installs it")
    from torch._dynamo.testing import CompileCounterWithBackend

    from gpt_cli.model.triton_attention import dropout_attention

    torch.compiler.reset()  # what other tests compiled with other shapes
    backend = CompileCounterWithBackend("aot_eager")
    compile_function = functools.partial(torch.compile, backend=backend, fullgraph=True)
    monkeypatch.setattr(torch, "compile", lambda function, **_: compile_function(function))
    sizes = ModelConfig(context_length=40, d_model=32, num_heads=2, num_blocks=2, dropout=0.3, positions="rope")
    plain, eager, compiled = (GPT(sizes, 50, torch.Generator().manual_seed(0)).train() for _ in range(3))
    eager.use_kernel(dropout_attention)
    compiled.compile_blocks().use_kernel(dropout_attention)
    ids = torch.arange(80).view(2, 40) % 50
    for step in range(3):
        keys = key_halves(torch.from_numpy(drop_keys(1, step, 2).view("int64")))
        for model in (plain, eager, compiled):
            model.zero_grad()
            model(ids, DropMasks(keys, 2 * step, 0.3)).square().mean().backward()
        for expected, *others in zip(*(model.parameters() for model in (plain, eager, compiled)), strict=True):
            for other in others:
                torch.testing.assert_close(expected.grad, other.grad, rtol=1e-4, atol=1e-8)
    assert backend.frame_count == 1


# prints bytes of the stack of each kernel, compiled for an H100
COMPILE = """
import subprocess, tempfile, torch, triton
from pathlib import Path
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from gpt_cli.model.triton_attention import _backward_keys, _backward_queries, _forward, _launch

TYPES = {"bound": "i32", "H": "i32", "T": "i32", "inverse": "fp32", "scale": "fp32"}
TYPES |= {"keys": "*i32", "first": "*i32", "LSE": "*fp32", "DELTA": "*fp32"}
STRIDES = [tensor + of for tensor in "qkvg" for of in "bht"]
TYPES |= dict.fromkeys(STRIDES, "i32")
# tensors and strides, which are multiples of 16 numbers in every model with such heads
ALIGNED, WHOLE = {*STRIDES, "Q", "K", "V", "G", "OUT", "LSE", "DELTA", "DQ", "DK", "DV"}, [["tt.divisibility", 16]]
READER = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"

def stack(kernel, pointer, num_warps, **sizes):
    names = kernel.arg_names
    types = {name: "constexpr" if name in sizes else TYPES.get(name, pointer) for name in names}
    constants = {(names.index(name),): size for name, size in sizes.items()}
    source = ASTSource(kernel, types, constants, {(names.index(name),): WHOLE for name in names if name in ALIGNED})
    binary = triton.compile(source, GPUTarget("cuda", 90, 32), {"num_warps": num_warps}).asm["cubin"]
    with tempfile.NamedTemporaryFile() as file:
        file.write(binary)
        file.flush()
        usage = subprocess.run([READER, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    return int(usage.stdout.split("STACK:")[1].split()[0])

for dtype, pointer in ((torch.bfloat16, "*bf16"), (torch.float32, "*fp32")):
    for K in (32, 64, 128):
        sizes = _launch(torch.empty((1, 1, 1, K), dtype=dtype, device="meta"), (), 0.1)[2]
        for kernel in (_forward, _backward_queries, _backward_keys):
            print(stack(kernel, pointer, **sizes))
"""


@pytest.mark.long
def test_a_gpu_computes_the_kernels_in_its_registers() -> None:
    """Triton compiles them for an H100 without one; blocks that were too large took 344 bytes to 10 kB of stack.

    The version matters little: for heads of 128, 3.6 takes 56 bytes in float32, 3.9 takes 80, and 8 in bfloat16.
    """
    pytest.importorskip("triton", reason="a gigabyte; make test-long installs it")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-W", "ignore", "-c", COMPILE]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    sizes = [int(line) for line in child.stdout.splitlines()]
    assert max(sizes[:9]) <= 16
    assert len(sizes) == 18
    assert max(sizes) <= 128
