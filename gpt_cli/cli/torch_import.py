"""The context in which commands import torch."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

from gpt_cli.common.files import working_folder
from gpt_cli.common.limits import TORCH_ADDRESS_SPACE
from gpt_cli.common.machine.memory import require_address_space


@contextlib.contextmanager
def importing_torch() -> Iterator[None]:
    """Hide from Python's garbage collector the 300,000 objects that an import of torch in this context makes.

    The collector would search the objects again and again during the import, in long trainings and when the process
    ends, and find next to no garbage (note 0043). Raises EnvironmentFailure if this process may not have enough memory,
    or if its working directory is gone.
    """
    if "torch" in sys.modules:
        yield
        return
    require_address_space(TORCH_ADDRESS_SPACE, "PyTorch")
    working_folder()  # without one MKL would end the process
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
