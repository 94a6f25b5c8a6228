"""Time a training step, and make it faster if that pays: compile the blocks, choose kernels, record a CUDA graph."""

import contextlib
import math
import warnings

import torch
from torch import Tensor

from gpt_cli.common.host import Host, Notify, ignored
from gpt_cli.common.machine.failures import is_lack_of_device_memory
from gpt_cli.errors import EnvironmentFailure, shown
from gpt_cli.training.cuda_graphs import record_step
from gpt_cli.training.data_parallel import gradient
from gpt_cli.training.kernel_trials import choose_kernels, drop_kernel
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import compute_gradient, send, time_step

# shorter trainings would not gain what compiling takes (note 0004)
COMPILE_FROM_SECONDS = 60.0
_KERNELS_FROM_SECONDS = 20.0  # on an H200, trial and compiling took 6 s, and the kernel saved a fifth (note 0069)
_MOST_BY_GRAPH = 20.0  # times as fast as steps that Python starts; up to 11 times were measured (note 0005)


def time_steps(state: TrainingState, host: Host, *, may_compile: bool, must_compile: bool) -> float:
    """Return the seconds of a step, after compiling the blocks if that pays and recording a CUDA graph if that works.

    With `train.compile` auto, blocks are compiled if `may_compile` and if the training is long enough. If torch cannot
    compile, steps run uncompiled; with `must_compile`, raises EnvironmentFailure instead.
    """
    seconds: float | None = None
    if state.config.train.compile == "auto":
        if may_compile:
            with host.working("timing a step"):
                seconds = _seconds_if_soon_over(state, host.warn)
        state.compile_blocks(may_compile and seconds is None)
    if state.config.train.compile == "on":
        host.notice("compiling, which may take half a minute")
    if seconds is None:
        with host.working("timing a step"):
            seconds = _time_step(state, host.warn, must_compile=must_compile)
            seconds = record_step(state, host.warn) or seconds
    return seconds


def _seconds_if_soon_over(state: TrainingState, warn: Notify) -> float | None:
    """Return the seconds of an uncompiled step if the training is too short for compiling to pay; else None."""
    try:
        seconds = time_step(state)
    except Exception as error:
        # compiled blocks need less memory
        if state.ranks.size > 1 or not is_lack_of_device_memory(error):
            raise
        return None
    messages: list[str] = []
    if _ends_within(state, seconds, _MOST_BY_GRAPH * COMPILE_FROM_SECONDS):
        recorded = record_step(state, messages.append)
        seconds = recorded or seconds
        if not _ends_within(state, seconds, _KERNELS_FROM_SECONDS):
            messages.clear()
            seconds = _choose_forms(state, messages.append, recorded)
            seconds = record_step(state, messages.append) or seconds
        if _ends_within(state, seconds, COMPILE_FROM_SECONDS):
            for message in messages:
                warn(message)
            return seconds
    state.whole_step = None
    return None


def _time_step(state: TrainingState, warn: Notify, *, must_compile: bool) -> float:
    """Return the seconds of a step; if torch cannot compile, use uncompiled blocks, or raise if `must_compile`."""
    try:
        with warnings.catch_warnings():
            # torch's compiler would have float32 computed with fewer bits
            warnings.filterwarnings("ignore", "TensorFloat32")
            recorded = None
            if not (state.progress.step or state.config.train.compile == "on" or state.reads_at_once):
                seconds = time_step(state)
                if _ends_within(state, seconds, _KERNELS_FROM_SECONDS):
                    return seconds
                recorded = record_step(state, ignored)
            return _choose_forms(state, warn, recorded)  # before blocks are compiled
    except Exception as error:
        if state.config.train.compile == "off" or not type(error).__module__.startswith("torch._"):
            raise
        sentence = f"torch cannot compile here, {shown((str(error) or type(error).__name__).splitlines()[0])}"
        if must_compile:
            raise EnvironmentFailure("train.compile", f"{sentence}; use off", hint="‹compile=off›") from error
    warn(f"{sentence}; training uncompiled{', not bit-exact from here on' if state.progress.step else ''}")
    state.compile_blocks(False)
    return _choose_forms(state, warn, None)


def _ends_within(state: TrainingState, step_seconds: float, seconds: float) -> bool:
    """Return whether max_steps, at `step_seconds` per step, or max_time ends the training in less than `seconds`."""
    steps, time = state.config.train.max_steps, state.config.train.max_time
    (of_all,) = state.ranks.broadcast(min(time or math.inf, (steps or math.inf) * step_seconds))
    return of_all < seconds


def _choose_forms(state: TrainingState, warn: Notify, plain_seconds: float | None) -> float:
    """Choose kernels, and whether a step casts the weights once for all micro-batches; return the seconds of a step.

    `plain_seconds` is the time of a step without kernels, replayed by a CUDA graph, or None. A new run with uncompiled
    blocks drops the attention kernel if no graph can replay steps with it, or if these take over `plain_seconds`.
    """
    state.whole_step = None  # whose graph takes memory
    choose_kernels(state, warn)
    compiled, has_kernel = state.config.train.compile == "on", "attention" in state.progress.environment
    if has_kernel and not compiled and not state.progress.step:
        seconds = record_step(state, ignored)
        state.whole_step = None
        if seconds is None or (plain_seconds is not None and seconds > plain_seconds):
            drop_kernel(state)
    return _choose_sharing(state)


def _choose_sharing(state: TrainingState) -> float:
    """Return the seconds of a step; on an accelerator, decide by a trial whether micro-batches share casts of weights.

    Sharing must give the same bits in less time. CPUs always share casts, which is faster (note 0070).
    """
    if state.reads_at_once or state.config.train.num_micro_batches == 1:
        return time_step(state)
    state.shares_matrices, state.whole_step = False, None  # whose graph takes memory
    seconds, recorded, gradients = _measured(state)
    state.shares_matrices = True
    with contextlib.suppress(RuntimeError):  # such as a lack of memory for the casts of all weights
        shared_seconds, shared_recorded, shared = _measured(state)
        if torch.equal(shared, gradients) and shared_recorded == recorded and shared_seconds < seconds:
            return shared_seconds
    state.shares_matrices, state.whole_step = False, None
    return seconds


def _measured(state: TrainingState) -> tuple[float, bool, Tensor]:
    """Return the seconds of a step, whether a CUDA graph replayed it, and numbers to compare losses and gradients."""
    seconds = record_step(state, ignored)
    try:
        losses = compute_gradient(state, send(state, state.progress.step))
        signs = torch.stack([(gradient(weight) * weight.detach()).sum() for weight in state.layout.owned.values()])
        numbers = torch.cat((losses, state.layout.gradient_norms(), signs))
    finally:
        state.optimizer.zero_grad()
    return seconds or time_step(state), seconds is not None, numbers
