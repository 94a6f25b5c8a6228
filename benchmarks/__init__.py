"""Timings, as ratios inside one run."""
