"""Timings on this machine: training, sampling and the forms of attention."""
