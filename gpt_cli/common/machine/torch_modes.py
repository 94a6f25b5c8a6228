"""Compute in torch's default modes, whatever modes a caller from Python has set."""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def default_modes() -> Iterator[None]:
    """Compute with gradients, no autocast, and float32 and the CPU as defaults; then restore the caller's modes."""
    with contextlib.ExitStack() as modes:
        if sys.modules.get("torch"):  # otherwise nobody has set a mode
            import torch

            modes.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float32)
            modes.enter_context(torch.inference_mode(False))  # which ends no_grad too
            for kind in ("cpu", getattr(torch.accelerator.current_accelerator(), "type", "cpu")):
                if torch.is_autocast_enabled(kind):
                    # the caller's cache lasts longer than a step: it would keep bfloat16 copies of changed weights
                    modes.enter_context(torch.autocast(kind, enabled=False, cache_enabled=False))
            if torch.get_default_device().type != "cpu":  # only then: the context slows every call of torch
                modes.enter_context(torch.device("cpu"))
        yield
