"""Linear layers whose weights no longer change, copied to the form that this machine reads fastest."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.sampling.quantise import to_int8

_BLOCK = 32  # columns of int8 weights; 16 or 32, by processor


class Products:
    """Makes products of one kind: in `dtype`, or with `int8` in bfloat16 with weights rounded to whole numbers."""

    def __init__(self, dtype: torch.dtype, *, int8: bool = False):
        self.dtype = torch.bfloat16 if int8 else dtype
        self.int8 = int8

    def of(self, weight: Tensor, bias: Tensor | None = None) -> nn.Module:
        """x [N, in] of any dtype -> [N, out] in `dtype`, with copies of a weight [out, in] and a bias [out]."""
        added = None if bias is None else bias.detach().to(self.dtype, copy=True)
        if self.int8:
            return _Int8(weight.detach(), added)
        copied = weight.detach().to(self.dtype, copy=True)
        return _Packed(copied, added) if _packs(copied) else _Plain(copied, added)

    def batched(self, weights: Sequence[Tensor], *, transposed: bool = False) -> nn.Module:
        """x [n, N, in] -> [n, N, out] with copies of n weights [out, in], or [in, out] if transposed.

        It computes in the dtype of the weights: bfloat16 takes three times as long for such small products (NOTES.md).
        """
        stacked = torch.stack([self._rounded(weight.detach()) for weight in weights])
        return _Batched((stacked if transposed else stacked.transpose(1, 2)).contiguous())

    def _rounded(self, weight: Tensor) -> Tensor:
        if not self.int8:
            return weight
        numbers, scales = to_int8(weight)
        return numbers * scales.to(weight.dtype)[:, None]


class _Plain(nn.Module):
    """A product by torch."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)


class _Packed(nn.Module):
    """A product by oneDNN, from a weight in its own order.

    It is 1.6 to 2.6 times as fast as F.linear, which for one row in float32 uses one core alone (NOTES.md).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.dtype, self.bias = weight.dtype, bias
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x.to(self.dtype), self.packed, self.bias, "none", [], "")


class _Int8(nn.Module):
    """A product in bfloat16 with whole numbers from -127 to 127 and a scale for each row of the weight."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        numbers, self.scales = to_int8(weight)
        # torch's kernel reads columns in blocks, beyond the end of a matrix whose last block is not full
        self.missing = -weight.shape[1] % _BLOCK
        self.numbers, self.bias = F.pad(numbers, (0, self.missing)), bias

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(torch.bfloat16)
        x = F.pad(x, (0, self.missing)) if self.missing else x.contiguous()
        found = torch.ops.aten._weight_int8pack_mm(x, self.numbers, self.scales)
        return found if self.bias is None else found + self.bias


class _Batched(nn.Module):
    """Several products at once."""

    def __init__(self, matrices: Tensor):
        super().__init__()
        self.matrices = matrices

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(x, self.matrices)


def _packs(weight: Tensor) -> bool:
    """Whether oneDNN, which comes with torch for x86 processors, can store this weight in the order it reads."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32
