"""Train a run for each point (settings) of a sweep, and compare them. Needs torch only to count GPUs and time steps."""
