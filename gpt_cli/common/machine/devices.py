"""Choose the device and the dtype of a model."""

from __future__ import annotations

import contextlib
import platform
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from typing import Literal, TypeVar

import torch

from gpt_cli.common.host import Notify
from gpt_cli.errors import EnvironmentFailure, counted, shown

# from this width on, products save more time in bfloat16 than the casts cost (note 0001)
BFLOAT16_FROM_D_MODEL = 64
CPU = torch.device("cpu")
T = TypeVar("T")


def accelerator() -> torch.device | None:
    """Return the accelerator of this machine that torch reports, such as cuda, mps or xpu; None without one."""
    return torch.accelerator.current_accelerator(check_available=True)


def choose_device(name: str) -> torch.device:
    """Return the device for a name: auto, cpu, or this machine's accelerator with or without a number, such as cuda:1.

    Raises EnvironmentFailure for a device that this machine does not have.
    """
    there, count = accelerator(), torch.accelerator.device_count()
    if name in ("auto", "cpu"):
        return there or CPU if name == "auto" else CPU
    kind, _, number = name.partition(":")
    if there is None or kind != there.type or int(number or 0) >= count:
        accelerators = counted(count, f"{there.type} device") if there else "no accelerator"
        wrong = f"{name} is not available, because torch {torch.__version__} finds {accelerators}"
        raise EnvironmentFailure("device", wrong, hint=f"‹device={there.type if there else 'cpu'}›")
    return torch.device(name)


@contextlib.contextmanager
def starting(device: torch.device) -> Iterator[None]:
    """Initialise a GPU (half a second on CUDA) in another thread while the context runs; do nothing for cpu and mps."""
    if device.type in ("cpu", "mps"):  # two threads at once may end the process on mps (pytorch #197805)
        yield
        return
    if device.index is None:  # another thread has another current device
        device = torch.device(device.type, torch.accelerator.current_device_index())

    def multiply() -> None:
        x = torch.ones(16, 16, device=device)
        for dtype in (torch.float32, torch.bfloat16):
            x.to(dtype).matmul(x.to(dtype))
        synchronize(device)

    with ThreadPoolExecutor(1) as worker:
        worker.submit(multiply)  # its errors are ignored, because the first step raises them again, with an explanation
        yield


def synchronize(device: torch.device) -> None:
    """Wait until a device has finished its work; return at once for a CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def to_device(numbers: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor to a device; if the device supports pinned memory, the CPU does not wait for the copy."""
    if supports(device, "pinned"):
        return numbers.pin_memory().to(device, non_blocking=True)
    # non_blocking, a device may read ordinary memory after its reuse, as mps does (pytorch #189690)
    return numbers.to(device)


def free_memory(device: torch.device) -> int | None:
    """Return the bytes of an accelerator's memory that new tensors can use; None if unknown, and for a CPU."""
    if device.type == "cpu":
        return None
    module = torch.get_device_module(device)
    if device.type == "mps":  # it shares main memory, and metal recommends how much of it to take
        return module.recommended_max_memory() - module.driver_allocated_memory()
    # in torch 2.10, only the module of a device may report free memory
    ask = getattr(torch.accelerator, "get_memory_info", None) or getattr(module, "mem_get_info", None)
    with contextlib.suppress(RuntimeError):
        unused = torch.accelerator.memory_reserved(device) - torch.accelerator.memory_allocated(device)
        return ask(device)[0] + unused if ask else None
    return None


@contextlib.contextmanager
def beside(device: torch.device) -> Iterator[None]:
    """Run the context on a new stream, as `record_graph` requires; synchronize the device before and after."""
    synchronize(device)
    # a failed recording leaves its own stream current; on cuda:1, recording would take a stream of cuda:0
    with torch.Stream(device):
        try:
            yield
        finally:
            synchronize(device)


def record_graph(device: torch.device, work: Callable[[], T]) -> tuple[Callable[[], None], T]:
    """Record `work`, for example as a CUDA graph, inside `beside`; return a function that repeats it, and its result.

    Each repetition uses the same memory, so it overwrites the result. Raises torch's errors.
    """
    if device.type == "cuda":  # which torch.accelerator.Graph of torch 2.13 does not know
        graph = torch.cuda.CUDAGraph()
        recording = torch.cuda.graph(graph, stream=torch.cuda.current_stream(device))
    else:
        graph = recording = torch.accelerator.Graph()
    with recording:
        result = work()
    return graph.replay, result


def recording_failure(error: RuntimeError) -> str:
    """Return why torch could not record a device's work: the first line of the root cause of `error`."""
    while isinstance(error.__context__, RuntimeError):
        error = error.__context__
    return shown((str(error) or type(error).__name__).splitlines()[0])


def device_name(device: torch.device) -> str:
    """Return the model name of a processor or a GPU; `str(device)` if torch does not know the name."""
    if device.type == "cpu":
        return processor()
    ask = getattr(torch.get_device_module(device), "get_device_name", None)
    return ask(device) if ask else str(device)


@cache
def supports(device: torch.device, what: Ability) -> bool:
    """Return whether a device has the ability `what`, such as float64, by a trial on a few numbers."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return _TRIALS[what](device)
    except (RuntimeError, TypeError, AttributeError):  # what versions of torch raise for a missing ability
        return False


def _try_float64(device: torch.device) -> bool:
    return torch.ones(2, dtype=torch.float64, device=device).sum().dtype == torch.float64


def _try_bfloat16(device: torch.device) -> bool:
    x = torch.ones(2, 2, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        return (x @ x).dtype == torch.bfloat16


def _try_pinned(device: torch.device) -> bool:
    """Return whether tensors arrive intact if pinned memory is released before the copy ends, as in `to_device`."""
    # mps gains nothing from pinned memory (pytorch #181720), and torch 2.10 to 2.13 may treat it as device memory
    if device.type in ("cpu", "mps") or not torch.empty(1).pin_memory().is_pinned():
        return False
    sent = [torch.tensor([number]).pin_memory().to(device, non_blocking=True) for number in range(16)]
    return torch.cat(sent).tolist() == list(range(16))


def _try_graphs(device: torch.device) -> bool:
    if device.type == "cpu":
        return False
    x = torch.zeros(1, device=device)
    with beside(device):
        replay, _ = record_graph(device, lambda: x.add_(1))
    replay()
    synchronize(device)
    return x.item() == 1


Ability = Literal["float64", "bfloat16", "pinned", "graphs"]
_TRIALS = {"float64": _try_float64, "bfloat16": _try_bfloat16, "pinned": _try_pinned, "graphs": _try_graphs}


def float64_device(device: torch.device) -> torch.device:
    """Return the device on which to sum in float64: `device`, or the CPU if `device`, such as mps, has no float64."""
    return device if supports(device, "float64") else CPU


def tokens_at_once(device: torch.device, on_cpu: int) -> int:
    """Return the fastest number of tokens per forward pass: `on_cpu` (which suits CPU caches) on a CPU, else 2^15."""
    return on_cpu if device.type == "cpu" else 2**15


def choose_dtype(name: str, device: torch.device, d_model: int, notice: Notify = lambda _: None) -> str:
    """Return float32 or bfloat16 for `name`; auto is bfloat16 if a device has instructions for it and `d_model` >= 64.

    Returns float32 for a device without bfloat16 products, and sends `notice` a line if `name` is bfloat16.
    """
    if name == "float32" or (name == "auto" and not (d_model >= BFLOAT16_FROM_D_MODEL and _is_fast(device))):
        return "float32"
    # a trial would initialise CUDA, which another thread does meanwhile; for AMD GPUs, torch always reports bfloat16
    knows = name == "auto" and device.type == "cuda" and not torch.version.hip
    if knows or supports(device, "bfloat16"):
        return "bfloat16"
    if name == "bfloat16":
        notice(f"{device} does not support bfloat16 products, so gpt computes them in float32")
    return "float32"


def _is_fast(device: torch.device) -> bool:
    """Return whether a device has bfloat16 instructions, as far as torch knows; other devices may emulate bfloat16."""
    if device.type == "cpu":
        return cpu_multiplies_bfloat16()
    ask = getattr(torch.get_device_module(device), "is_bf16_supported", None)
    # mps reports nothing: M1 and M2 emulate it, and on an M4 it took longer than float32 (karpathy/nanochat #685)
    with torch.accelerator.device_index(device.index):  # torch answers for the current device
        return ask(including_emulation=False) if ask else device.type != "mps"


def choose_compile(name: str, device: torch.device, *, long: bool) -> str:
    """Return on or off: auto means on for `long` trainings on an accelerator with Triton, else off (note 0001)."""
    if name == "auto":
        return "on" if long and device.type != "cpu" and find_spec("triton") else "off"
    return name


def cpu_multiplies_bfloat16() -> bool:
    """Return whether this processor has instructions for bfloat16 products."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def processor() -> str:
    """Return the processor's model name, the numbers of an ARM core, or the architecture if Linux has neither."""
    if part := _of_processor("CPU part"):
        return f"{platform.machine()} {_of_processor('CPU implementer')} {part}"
    return _of_processor("model name") or platform.processor() or platform.machine()


def processor_vendor() -> str:
    """Return the processor's vendor id, such as GenuineIntel or AuthenticAMD; "" if the system reports none."""
    return _of_processor("vendor_id") or platform.processor().rpartition(", ")[2]


def processor_abilities() -> str:
    """Return the processor's name and instruction sets, which decide whether compiled code can run on it."""
    return " ".join([processor(), _of_processor("flags") or _of_processor("Features") or ""])


def _of_processor(wanted: str) -> str | None:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() == wanted:
                return value.strip()
    return None


def product_dtype(name: str) -> torch.dtype:
    """Return the torch dtype called `name`: float32 or bfloat16."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def autocast(device: torch.device, dtype: str, *, enabled: bool = True) -> contextlib.AbstractContextManager[object]:
    """Return a context that computes matrix products in `dtype`, float32 or bfloat16; weights stay float32.

    With enabled=False, the context casts nothing itself, but caches the weights that inner autocast contexts cast to
    bfloat16, so that later inner contexts need not cast these weights again.
    """
    if dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


@contextlib.contextmanager
def restored_threads(number: int | None = None) -> Iterator[None]:
    """Let torch compute with `number` CPU threads in the context (None: no change); then restore the earlier number."""
    before = torch.get_num_threads()
    if number != before:  # setting even the same number would keep MKL from choosing fewer
        use_threads(number)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def use_threads(number: int | None) -> None:
    """Set the number of CPU threads that torch computes with; None leaves the number to torch."""
    if number is not None:
        torch.set_num_threads(number)
