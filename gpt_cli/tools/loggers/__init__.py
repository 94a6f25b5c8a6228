"""Existing loggers, such as wandb: each has a process that reads a run's files, and cannot stop or slow a training."""
