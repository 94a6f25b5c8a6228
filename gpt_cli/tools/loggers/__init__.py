"""Loggers such as wandb, each in a separate process that reads a run's files and cannot stop or slow the training."""
