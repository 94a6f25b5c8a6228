"""Where a model runs, and in which precision."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from collections.abc import Iterator

import torch

from gpt_cli.errors import EnvironmentFailure, counted

# from this width on the products gain more from bfloat16 than its casts cost (NOTES.md)
BFLOAT16_FROM_D_MODEL = 64


def choose_device(name: str) -> torch.device:
    """The device of auto, cpu, cuda or cuda:N; raises EnvironmentFailure if this machine does not have it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name != "cpu":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        number = int(name.partition(":")[2] or 0)
        if number >= count:
            found = counted(count, "CUDA device") if count else "no CUDA device"
            wrong = f"{name} is not available, because torch {torch.__version__} finds {found}"
            raise EnvironmentFailure("device", wrong, hint="--device cpu")
    return torch.device(name)


def num_gpus() -> int:
    """The number of GPUs that torch finds."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def choose_dtype(name: str, device: torch.device, d_model: int) -> str:
    """float32 or bfloat16; auto takes bfloat16 on devices that multiply it, for models that are wide enough."""
    if name != "auto":
        return name
    multiplies = torch.cuda.is_bf16_supported() if device.type == "cuda" else cpu_multiplies_bfloat16()
    return "bfloat16" if multiplies and d_model >= BFLOAT16_FROM_D_MODEL else "float32"


def choose_compile(name: str, device: torch.device, *, long: bool) -> str:
    """on or off; auto compiles `long` trainings on CUDA. A CPU gains too little for the time it takes (NOTES.md).

    Raises EnvironmentFailure for a CPU if this machine has no C++ compiler.
    """
    if name == "auto":
        return "on" if device.type == "cuda" and long else "off"
    compiler = os.environ.get("CXX", "g++")
    if name == "on" and device.type == "cpu" and shutil.which(compiler) is None:
        wrong = f"compiling for a CPU needs a C++ compiler, and {compiler} is not on the path"
        raise EnvironmentFailure("train.compile", wrong, hint="--compile off")
    return name


def cpu_multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for bfloat16 products."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def processor() -> str:
    """The model name of this machine's processor, or its architecture where the system reports no name."""
    return _of_processor("model name") or platform.processor() or platform.machine()


def processor_vendor() -> str:
    """The processor's maker as it names itself, such as GenuineIntel or AuthenticAMD; empty where none is reported."""
    return _of_processor("vendor_id") or platform.processor().rpartition(", ")[2]


def _of_processor(wanted: str) -> str | None:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() == wanted:
                return value.strip()
    return None


def product_dtype(name: str) -> torch.dtype:
    """The torch dtype of float32 or bfloat16."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def autocast(device: torch.device, dtype: str) -> contextlib.AbstractContextManager[object]:
    """A context that computes products in `dtype`; weights stay float32."""
    if dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


@contextlib.contextmanager
def threads_kept() -> Iterator[None]:
    """Afterwards, torch computes with as many threads as before."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def use_threads(number: int | None) -> None:
    """Compute with `number` CPU threads; None leaves their number to torch."""
    if number is not None:
        torch.set_num_threads(number)
