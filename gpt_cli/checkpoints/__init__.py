"""What a run leaves behind: checkpoints, metrics and samples, and how they are found again."""
