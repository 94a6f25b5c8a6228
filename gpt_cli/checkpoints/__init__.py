"""The files of a training run: checkpoints, metrics and samples, and how gpt finds them."""
