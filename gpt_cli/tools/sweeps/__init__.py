"""Train many runs, one for each point of a sweep, and compare them. Needs no torch, but to count GPUs."""
