"""Train many runs, one for each point of a sweep, and compare them. Needs torch only to count GPUs."""
