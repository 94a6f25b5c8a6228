"""Products with weights that no longer change, copied to the form that this machine reads fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from gpt_cli.sampling.quantise import to_int8

Product = Callable[[Tensor], Tensor]
_BLOCK = 32  # columns of int8 weights; 16 or 32, by processor


class Products:
    """Makes products of one kind: in `dtype`, or with `int8` in bfloat16 with weights rounded to whole numbers."""

    def __init__(self, dtype: torch.dtype, *, int8: bool = False):
        self.dtype = torch.bfloat16 if int8 else dtype
        self.int8 = int8

    def of(self, weight: Tensor, bias: Tensor | None = None) -> Product:
        """x [N, in] -> [N, out], both in `dtype`, with copies of a weight [out, in] and a bias."""
        return self._int8(weight.detach(), bias) if self.int8 else self._plain(weight.detach(), bias)

    def batched(self, weights: Sequence[Tensor], *, transposed: bool = False) -> Product:
        """x [n, N, in] -> [n, N, out] with copies of n weights [out, in], [in, out] if transposed.

        They are in the dtype of the weights: bfloat16 takes three times as long for such small products (NOTES.md).
        """
        stacked = torch.stack([self._rounded(weight.detach()) for weight in weights])
        matrices = (stacked if transposed else stacked.transpose(1, 2)).contiguous()
        return lambda x: torch.bmm(x, matrices)

    def _rounded(self, weight: Tensor) -> Tensor:
        if not self.int8:
            return weight
        numbers, scales = to_int8(weight)
        return numbers * scales.to(weight.dtype)[:, None]

    def _plain(self, weight: Tensor, bias: Tensor | None) -> Product:
        copied = weight.to(self.dtype, copy=True)
        added = None if bias is None else bias.detach().to(self.dtype, copy=True)
        if _packs(copied):
            # 1.6 to 2.6 times as fast as F.linear, which for one row in float32 uses one core alone (NOTES.md)
            packed = torch.ops.mkldnn._reorder_linear_weight(copied)
            return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, added, "none", [], "")
        return lambda x: F.linear(x, copied, added)

    def _int8(self, weight: Tensor, bias: Tensor | None) -> Product:
        numbers, scales = to_int8(weight)
        added = None if bias is None else bias.detach().to(self.dtype)
        # torch's kernel reads columns in blocks, beyond the end of a matrix whose last one is not full
        missing = -weight.shape[1] % _BLOCK
        numbers = F.pad(numbers, (0, missing))

        def product(x: Tensor) -> Tensor:
            whole = F.pad(x, (0, missing)) if missing else x.contiguous()
            found = torch.ops.aten._weight_int8pack_mm(whole, numbers, scales)
            return found if added is None else found + added

        return product


def _packs(weight: Tensor) -> bool:
    """Whether oneDNN, which comes with torch for x86 processors, can store this weight in the order it reads."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32
