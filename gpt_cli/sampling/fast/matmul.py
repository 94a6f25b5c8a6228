"""Products with fixed weights, each computed by the implementation ("form") that is fastest on this processor.

benchmarks/products.py times all forms beside F.linear; note 0026 has the figures behind `choose_form`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from gpt_cli.common.machine.devices import cpu_multiplies_bfloat16, processor_vendor
from gpt_cli.sampling.fast.c_library import Weight
from gpt_cli.sampling.fast.int8 import float32_weight, rounded, to_int8

Product = Callable[[Tensor], Tensor]
Form = Literal["linear", "one row", "packed", "int8", "packed int8"]
# numbers in a weight from which oneDNN saves more than its calls cost; smaller weights fit in a cache (note 0026)
PACKED_FROM: Mapping[torch.dtype, int] = MappingProxyType({torch.float32: 2**18, torch.bfloat16: 2**13})
INT8_ROWS = 4  # with more, torch's integer kernel is slower than products in bfloat16
_BLOCK = 32  # columns of int8 weights; 16 or 32, by processor


def possible(form: Form, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether the implementation `form` can run in `dtype` on `device`, even if another one is faster."""
    if form == "linear":
        return True
    if device.type != "cpu" or dtype not in PACKED_FROM or (form != "packed" and dtype != torch.bfloat16):
        return False
    if form in ("one row", "int8"):
        return True
    return torch.backends.mkldnn.is_available() and (
        dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def choose_form(size: int, dtype: torch.dtype, device: torch.device, *, int8: bool = False, num_rows: int = 1) -> Form:
    """Return the fastest implementation of x @ weight.T in `dtype`: a weight of `size` numbers, x of `num_rows` rows.

    CPUs without measurements get "linear", or "int8" with `int8`. In float32, the choice does not depend on `num_rows`,
    so a sample is the same in any batch.
    """
    vendor, multiplies = processor_vendor(), cpu_multiplies_bfloat16()
    packs = possible("packed", dtype, device) and size >= PACKED_FROM[dtype]
    if dtype == torch.float32:
        return "packed" if packs and vendor == "AuthenticAMD" else "linear"
    packs = packs and multiplies and vendor in ("AuthenticAMD", "GenuineIntel")
    if int8:
        return "packed int8" if packs and num_rows > INT8_ROWS else "int8"
    if num_rows == 1 and possible("one row", dtype, device) and multiplies and vendor == "AuthenticAMD":
        return "one row"
    return "packed" if packs else "linear"


def linear(weight: Tensor, bias: Tensor | None) -> Product:
    """Return a function that computes F.linear with this weight and bias: [N, in] -> [N, out]."""
    return lambda x: F.linear(x, weight, bias)


def one_row(weight: Tensor, bias: Tensor | None) -> Product:
    """Return a function [N, in] -> [N, out] that calls torch.mv without oneDNN if N = 1, else F.linear."""

    def product(x: Tensor) -> Tensor:
        if len(x) > 1:
            return F.linear(x, weight, bias)
        # the public switch, torch.backends.mkldnn.flags, takes as long as a product
        was = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)
        try:
            product_row = torch.mv(weight, x.view(-1))
        finally:
            torch._C._set_mkldnn_enabled(was)
        return (product_row if bias is None else product_row + bias).unsqueeze(0)

    return product


def packed_product(weight: Tensor, bias: Tensor | None) -> Product:
    """Return a function x -> x weightᵀ + bias by oneDNN (part of torch on x86), which stores the weight reordered."""
    reordered = torch.ops.mkldnn._reorder_linear_weight(weight)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, reordered, bias, "none", [], "")


def unpacked_product(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply x by a weight with oneDNN, without another copy of the weight: [N, in], [out, in] -> [N, out]."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")


def int8(weight: Tensor, bias: Tensor | None) -> Product:
    """Return a function x -> x weightᵀ + bias, for x in bfloat16, by torch's int8 kernel on weights of `to_int8`."""
    numbers, scales = to_int8(weight)
    # torch's kernel reads columns in blocks, beyond the end of a matrix whose last one is not full
    missing = -weight.shape[1] % _BLOCK
    numbers = F.pad(numbers, (0, missing))

    def product(x: Tensor) -> Tensor:
        whole = F.pad(x, (0, missing)) if missing else x.contiguous()
        scaled = torch.ops.aten._weight_int8pack_mm(whole, numbers, scales)
        return scaled if bias is None else scaled + bias

    return product


def packed_int8(weight: Tensor, bias: Tensor | None) -> Product:
    """Return a function x -> x weightᵀ + bias by oneDNN, with weights rounded as in `int8` but stored in bfloat16."""
    numbers, scales = to_int8(weight)
    product = packed_product(numbers.to(torch.bfloat16), None)
    if bias is None:
        return lambda x: product(x) * scales
    return lambda x: torch.addcmul(bias, product(x), scales)


FORMS: Mapping[Form, Callable[[Tensor, Tensor | None], Product]] = MappingProxyType(
    {"linear": linear, "one row": one_row, "packed": packed_product, "int8": int8, "packed int8": packed_int8}
)


def copied(weight: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return a copy of a weight in `dtype` (None: unchanged); a 16-bit weight that has this dtype is not copied."""
    return weight.detach().to(weight.dtype if dtype is None else dtype, copy=weight.dtype.itemsize > 2)


class Products:
    """Factory of functions that multiply by fixed weights in `dtype`, or, with `int8`, in bfloat16 by int8 weights.

    Inputs have about `num_rows` rows. With `compiled`, C code multiplies: inputs are float32, weights may be bfloat16.
    """

    def __init__(self, dtype: torch.dtype, *, int8: bool = False, num_rows: int = 1, compiled: bool = False):
        self.requested_dtype = torch.bfloat16 if int8 else dtype
        self.dtype = torch.float32 if compiled else self.requested_dtype
        self.int8, self.compiled = int8, compiled
        self._choose = partial(choose_form, int8=int8, num_rows=num_rows)

    def of(self, weight: Tensor, bias: Tensor | None = None) -> Product:
        """Return the linear layer [N, in] -> [N, out] in `self.dtype` that has weight [out, in] and bias [out]."""
        if self.compiled:
            return self._stored(weight.detach(), bias)
        form = self._choose(weight.numel(), self.dtype, weight.device)
        weight = weight.detach() if self.int8 else copied(weight, self.dtype)
        return FORMS[form](weight, None if bias is None else copied(bias, self.dtype))

    def _stored(self, weight: Tensor, bias: Tensor | None) -> Weight:
        dtype = self.requested_dtype if cpu_multiplies_bfloat16() else torch.float32
        # in bfloat16, F.linear calls oneDNN by itself
        packs = dtype == torch.float32 and choose_form(weight.numel(), dtype, weight.device) == "packed"
        kind = partial(Weight, multiply=unpacked_product if packs else F.linear, multiply_dtype=dtype)
        if self.int8:
            numbers, scales = to_int8(weight)
            return kind(numbers, bias, scales)
        # float32 represents each bfloat16 number exactly
        stays_bfloat16 = weight.dtype == torch.bfloat16 and self.requested_dtype == torch.float32
        return kind(copied(weight, torch.bfloat16 if stays_bfloat16 else self.requested_dtype), bias)

    def batched(self, weights: Sequence[Tensor], *, transposed: bool = False) -> Product:
        """Return a function [n, N, in] -> [n, N, out] with copies of n weights [out, in], or [in, out] if `transposed`.

        Products are in the dtype of the weights, or in float32 for 16-bit weights: bfloat16 takes three times as long
        for such small products (note 0026).
        """
        wide = [float32_weight(weight.detach()) for weight in weights]
        stacked = torch.stack([rounded(weight) for weight in wide] if self.int8 else wide)
        matrices = (stacked if transposed else stacked.transpose(1, 2)).contiguous()
        return lambda x: torch.bmm(x, matrices)
