"""Read, write and find the files of a training run: checkpoints, metrics and samples."""
