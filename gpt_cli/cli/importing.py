"""How commands import torch."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def importing_torch() -> Iterator[None]:
    """Keep Python's garbage collector away from the objects that an import of torch makes: there are 300,000.

    It would look for garbage among them again and again during the import, in long trainings and when the process
    ends, and find next to none (NOTES.md).
    """
    if "torch" in sys.modules:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
