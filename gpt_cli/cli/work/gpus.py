"""How many GPUs there are; needs torch."""

from __future__ import annotations

import torch


def num_gpus() -> int:
    """The number of GPUs that torch finds."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
