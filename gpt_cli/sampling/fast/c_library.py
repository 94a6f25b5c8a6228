"""Compile token.c, which decodes a token on the CPU, if there is a C compiler; declare the arguments of its functions.

Torch is slower: it dispatches about 20 operations a block for each token, and sums only float32 weights in float32.
"""

import ctypes
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from gpt_cli.common.files import cache_directory, make_directory, write_durably
from gpt_cli.common.machine.devices import processor_abilities
from gpt_cli.errors import GptError

SOURCE = Path(__file__).with_name("token.c")
# linked without -ffast-math, which would change how the whole process rounds tiny numbers; the functions of OpenMP are
# those that torch has loaded, so that both share their threads
_COMPILE = ["-O3", "-march=native", "-ffast-math", "-fno-finite-math-only", "-fopenmp", "-fPIC", "-c"]
Address = ctypes.c_void_p
_LONGEST = 60  # seconds of a compilation
_KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
_FEW_ROWS = 16  # up to which token.c is faster than converting a weight to float32 for torch


def _fields(**types: str) -> list[tuple[str, type]]:
    """Return ctypes fields; keywords are types (address, int64 `whole`, float `number`): whole="D H" makes D and H."""
    c_types = {"address": ctypes.c_void_p, "whole": ctypes.c_int64, "number": ctypes.c_float}
    return [(name, c_types[kind]) for kind, names in types.items() for name in names.split()]


class Matrix(ctypes.Structure):
    _fields_ = _fields(address="numbers scales bias", whole="kind num_out num_in")


class Norm(ctypes.Structure):
    _fields_ = _fields(address="weight bias")


class Layer(ctypes.Structure):
    _fields_ = [
        ("norm_1", Norm),
        ("norm_2", Norm),
        *((name, Matrix) for name in ("queries_keys_values", "projection_layer", "expand", "contract")),
        *_fields(address="head_norms keys values", whole="num_slots first last", number="scale head_epsilon"),
    ]


class Model(ctypes.Structure):
    _fields_ = [
        ("layers", ctypes.POINTER(Layer)),
        ("final_norm", Norm),
        ("output_layer", Matrix),
        *_fields(
            whole="num_layers D H G K F rotated_size activation gated root_mean_square pre_norm parallel_branches "
            "num_threads",
            address="projections scores mixed hidden",
            number="epsilon",
        ),
    ]


@cache
def library() -> ctypes.CDLL | None:
    """Return token.c as a loaded library, compiled once and then read from the cache directory; None if that fails.

    The environment variable CC names the compiler; an empty CC means that there is no compiler.
    """
    try:
        if not (compiler := shlex.split(os.environ.get("CC", "cc"))):
            return None
        key = sha256("\0".join([SOURCE.read_text("utf-8"), *compiler, *_COMPILE, processor_abilities()]).encode())
        cached = cache_directory("compiled") / f"token-{key.hexdigest()[:32]}.so"
        with suppress(OSError):  # missing, damaged, or in a folder from which nothing may run
            return ctypes.CDLL(str(cached))
        with tempfile.TemporaryDirectory() as folder:
            parts, built = Path(folder) / "token.o", Path(folder) / "token.so"
            for command in ([*_COMPILE, SOURCE, "-o", parts], ["-shared", parts, "-lm", "-o", built]):
                subprocess.run([*compiler, *command], check=True, capture_output=True, timeout=_LONGEST)
            with suppress(OSError, GptError):
                make_directory(cached.parent)
                write_durably(cached, [built.read_bytes()])
                return ctypes.CDLL(str(cached))  # on some machines, nothing may run from the temporary folder
            return ctypes.CDLL(str(built))
    except (OSError, subprocess.SubprocessError, GptError, ValueError):  # ValueError: CC has a quote that does not end
        return None


class Weight:
    """Linear layer with weights [out, in] in their stored dtype, run by token.c: x [N, in] float32 -> [N, out] float32.

    `numbers` are the weights: float32, bfloat16, or int8 with one of `scales` [out] for each row. If x has over 16
    rows, `multiply` computes the product instead of token.c, in `multiply_dtype`.
    """

    def __init__(
        self,
        numbers: Tensor,
        bias: Tensor | None,
        scales: Tensor | None = None,
        *,
        multiply: Callable[[Tensor, Tensor], Tensor] = F.linear,
        multiply_dtype: torch.dtype = torch.float32,
    ):
        self.numbers, self._multiply, self._dtype = numbers.contiguous(), multiply, multiply_dtype
        self.bias, self.scales = _float32(bias), _float32(scales)
        addresses = address_of(self.numbers), address_of(self.scales), address_of(self.bias)
        self.matrix = Matrix(*addresses, _KINDS[numbers.dtype], *numbers.shape)

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) > _FEW_ROWS:
            product = self._multiply(x.to(self._dtype), self.numbers.to(self._dtype)).float()
            product = product if self.scales is None else product.mul_(self.scales)
            return product if self.bias is None else product.add_(self.bias)
        x, product = x.contiguous(), x.new_empty(len(x), len(self.numbers))
        compiled = library()
        assert compiled is not None
        sizes = ctypes.c_int64(len(x)), ctypes.c_int64(torch.get_num_threads())
        compiled.product(ctypes.byref(self.matrix), Address(x.data_ptr()), Address(product.data_ptr()), *sizes)
        return product


def address_of(numbers: Tensor | None) -> int | None:
    return None if numbers is None else numbers.data_ptr()


def _float32(numbers: Tensor | None) -> Tensor | None:
    return None if numbers is None else numbers.detach().float().contiguous()
