"""This machine: where a model runs, in which precision, and how much memory there is."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shutil

import torch

from gpt_cli.errors import EnvironmentFailure

# from this width on the products gain more from bfloat16 than its casts cost (NOTES.md)
BFLOAT16_FROM_D_MODEL = 64
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of glibc's malloc.h


def choose_device(name: str) -> torch.device:
    """The device of auto, cpu, cuda or cuda:N; raises EnvironmentFailure for one that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name != "cpu":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        number = int(name.partition(":")[2] or 0)
        if number >= count:
            found = f"this torch ({torch.__version__}) finds {count} CUDA devices"
            raise EnvironmentFailure(
                "device", f"{name} is not there, {found}", "use cpu or one that is", hint="--device cpu"
            )
    return torch.device(name)


def choose_dtype(name: str, device: torch.device, d_model: int) -> str:
    """float32 or bfloat16; auto takes bfloat16 on CUDA and on CPUs that multiply it, for models wide enough."""
    if name != "auto":
        return name
    multiplies = torch.cuda.is_bf16_supported() if device.type == "cuda" else cpu_multiplies_bfloat16()
    return "bfloat16" if multiplies and d_model >= BFLOAT16_FROM_D_MODEL else "float32"


def choose_compile(name: str, device: torch.device, *, long: bool) -> str:
    """on or off; auto compiles `long` trainings on CUDA: a CPU gains too little for what it takes (NOTES.md).

    Raises EnvironmentFailure where a CPU's code would need a C++ compiler that is not there.
    """
    if name == "auto":
        return "on" if device.type == "cuda" and long else "off"
    compiler = os.environ.get("CXX", "g++")
    if name == "on" and device.type == "cpu" and shutil.which(compiler) is None:
        wrong = f"there is no C++ compiler, {compiler} is not found"
        raise EnvironmentFailure("train.compile", wrong, "install one, or use off", hint="--compile off")
    return name


def cpu_multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for bfloat16 products."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def processor() -> str:
    """The model name of this machine's processor, as far as the system tells it."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def product_dtype(name: str) -> torch.dtype:
    """The dtype of products that a setting names."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def autocast(device: torch.device, dtype: str) -> contextlib.AbstractContextManager[object]:
    """A context in which products are computed in `dtype`; weights stay float32."""
    if dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def reuse_memory() -> None:
    """Tell the C library to keep what this process frees, for its next tensors; others than glibc are left alone.

    To ask the system for memory at each step costs more than the arithmetic of a small model (NOTES.md).
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def available_memory() -> int | None:
    """Bytes that programs may still use without swapping; None where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None
