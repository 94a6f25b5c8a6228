"""A simulated accelerator: tensors of the device `sim` hold real numbers, and nothing of the CPU may touch them."""

from support.accelerator.simulation import Accelerator, missing, on_cpu

__all__ = ["Accelerator", "missing", "on_cpu"]
