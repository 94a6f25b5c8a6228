"""Measure and use this machine: devices, memory, signals, and the load of other programs."""
