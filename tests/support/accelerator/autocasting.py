"""Autocast for a simulated device: products in bfloat16, sums and losses in float32, as torch lists them for devices."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from support.accelerator.tensors import DEVICE, SimTensor

_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]
_PRODUCTS = """
addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot prelu
scaled_dot_product_attention
"""
_IN_FLOAT32 = """
acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim
cosine_similarity nll_loss nll_loss2d kl_div l1_loss smooth_l1_loss huber_loss mse_loss logsumexp
binary_cross_entropy_with_logits dist cdist renorm
"""
# they take a dtype
_INTO_FLOAT32 = """
prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm sum sum.dim_IntList
"""
_WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot index_put tensordot scatter_add"


def register(libraries: list[torch.library.Library]) -> None:
    """Give the operations of a simulated device their casts; what is not listed computes in what it is given."""
    every = torch.library.Library("_", "IMPL")
    every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    aten = torch.library.Library("aten", "IMPL")
    for names, rule in ((_PRODUCTS, _low), (_IN_FLOAT32, _float32), (_INTO_FLOAT32, _into_float32), (_WIDEST, _widest)):
        for name in names.split():
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
            if op is not None:
                aten.impl(name, _kernel(op, rule), "AutocastPrivateUse1")
    libraries += [every, aten]


def _kernel(op: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEY):
            return rule(op, args, kwargs)

    return kernel


def _low(op: Any, args: Any, kwargs: Any) -> Any:
    return _cast(op, args, kwargs, torch.get_autocast_dtype(DEVICE))


def _float32(op: Any, args: Any, kwargs: Any) -> Any:
    return _cast(op, args, kwargs, torch.float32)


def _into_float32(op: Any, args: Any, kwargs: Any) -> Any:
    of_low = isinstance(args[0], SimTensor) and args[0].dtype in (torch.bfloat16, torch.float16)
    if of_low and kwargs.get("dtype") is None and not any(isinstance(x, torch.dtype) for x in args):
        kwargs = {**kwargs, "dtype": torch.float32}
    return op(*args, **kwargs)


def _widest(op: Any, args: Any, kwargs: Any) -> Any:
    found = [x.dtype for x in args if isinstance(x, SimTensor) and x.dtype in (torch.float32, torch.bfloat16)]
    return _cast(op, args, kwargs, torch.float32 if torch.float32 in found else torch.get_autocast_dtype(DEVICE))


def _cast(op: Any, args: Any, kwargs: Any, dtype: torch.dtype) -> Any:
    def cast(x: Any) -> Any:
        if isinstance(x, (tuple, list)):
            return type(x)([cast(each) for each in x])
        eligible = isinstance(x, Tensor) and x.device.type == DEVICE and x.is_floating_point()
        return x.to(dtype) if eligible and x.dtype not in (dtype, torch.float64) else x

    return op(*map(cast, args), **{key: cast(x) for key, x in kwargs.items()})
