"""Loggers such as wandb, each in a process of its own that reads a run's files, and cannot stop or slow a training."""
