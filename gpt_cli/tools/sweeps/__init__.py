"""Train and compare the runs of a sweep, one per point (settings). Needs torch only to count GPUs and time a step."""
